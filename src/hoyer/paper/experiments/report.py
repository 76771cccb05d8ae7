"""The report of a run: the same blocks as Markdown and as a page of HTML that stands alone."""

import base64
import html
import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import numpy as np

import hoyer
from hoyer.paper.experiments.agreement import Agreement
from hoyer.paper.experiments.claims import Claim, Verdict, judge, rules, tally
from hoyer.paper.experiments.experiment import AnyExperiment
from hoyer.paper.experiments.figures import FIGURES
from hoyer.paper.experiments.files import replacing
from hoyer.paper.experiments.results import EXPERIMENTS, Results
from hoyer.paper.experiments.runner import MEASURED_FILE
from hoyer.paper.experiments.settings import Settings, exponent, power, scientific

__all__ = ["protocol_rows", "write_report"]

_SIGNS = {Verdict.YES: "✓", Verdict.NO: "✗", Verdict.OPEN: "–"}


def _shown(verdict: Verdict) -> str:
    return f"{_SIGNS[verdict]} {verdict}"


def _escaped(text: str) -> str:
    """Return text for Markdown, where stars and bars have a meaning."""
    return re.sub(r"([*|])", r"\\\1", text)


def _typeset(text: str) -> str:
    """Return text for HTML; no line ends in the middle of an equation, or before a unit."""
    return re.sub(r" (?=[KM]iB|ns\b|= )|(?<= =) ", "&nbsp;", html.escape(text))


class _Block(Protocol):
    def markdown(self) -> str: ...
    def html(self) -> str: ...


@dataclass(frozen=True, slots=True)
class _Heading:
    text: str

    @property
    def anchor(self) -> str:
        """What links lead to: in Markdown the heading's words, as those who show it have it."""
        return re.sub(r"[^\w -]", "", self.text.lower()).replace(" ", "-")

    def markdown(self) -> str:
        return f"## {self.text}"

    def html(self) -> str:
        return f'<h2 id="{self.anchor}">{_typeset(self.text)}</h2>'


@dataclass(frozen=True, slots=True)
class _Contents:
    lines: Sequence[tuple[_Heading, str]]
    """The headings, each with what is to be said about its part."""

    def markdown(self) -> str:
        lines = ((f"[{heading.text}](#{heading.anchor})", note) for heading, note in self.lines)
        return "\n".join(f"- {link}{note and f': {note}'}" for link, note in lines)

    def html(self) -> str:
        items = "".join(
            f'<li><a href="#{heading.anchor}">{_typeset(heading.text)}</a> '
            f"<span>{_typeset(note)}</span></li>"
            for heading, note in self.lines
        )
        return f'<nav aria-label="Contents"><ul>{items}</ul></nav>'


@dataclass(frozen=True, slots=True)
class _Paragraph:
    text: str

    def markdown(self) -> str:
        return _escaped(self.text)

    def html(self) -> str:
        return f"<p>{_typeset(self.text)}</p>"


@dataclass(frozen=True, slots=True)
class _List:
    items: Sequence[str]

    def markdown(self) -> str:
        return "\n".join(f"- {_escaped(item)}" for item in self.items)

    def html(self) -> str:
        return f"<ul>{''.join(f'<li>{_typeset(item)}</li>' for item in self.items)}</ul>"


@dataclass(frozen=True, slots=True)
class _Table:
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    kind: Literal["claims", "data"] = "data"
    """On a narrow screen a claim is a paragraph, and a table of data is moved sideways."""

    def markdown(self) -> str:
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        return "\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines)

    def html(self) -> str:
        head = "".join(f"<th>{_typeset(cell)}</th>" for cell in self.header)
        body = "".join(f"<tr>{''.join(map(self._cell, row))}</tr>" for row in self.rows)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f'<div class="{self.kind}">{table}</div>'

    @staticmethod
    def _cell(cell: str) -> str:
        kinds = (v.name.lower() for v in Verdict if cell == _shown(v))
        mark = "".join(f' class="{kind}"' for kind in kinds)
        return f"<td{mark}>{_typeset(cell)}</td>"


@dataclass(frozen=True, slots=True)
class _Image:
    path: Path
    """Of the figure, without its suffix."""
    caption: str

    def markdown(self) -> str:
        return f"![{self.path.name}]({self.path.name}.png)\n\n*{_escaped(self.caption)}*"

    def html(self) -> str:
        data = base64.b64encode(self.path.with_name(self.path.name + ".svg").read_bytes()).decode()
        caption = _typeset(self.caption)
        return (
            '<figure><label><input type="checkbox"><span>'
            f'<img src="data:image/svg+xml;base64,{data}" alt="{caption}"></span></label>'
            f"<figcaption>{caption}</figcaption></figure>"
        )


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff;
       max-width: 62rem; margin: 2.5rem auto; padding: 0 1.2rem; overflow-wrap: break-word; }}
h1 {{ font-size: 1.7rem; line-height: 1.25; }}
h2 {{ font-size: 1.2rem; margin-top: 2.8rem; border-bottom: 1px solid #ddd; }}
nav ul {{ list-style: none; padding: .8rem 1.2rem; background: #f5f5f5; }}
nav li {{ display: flex; flex-wrap: wrap; gap: 0 1rem; justify-content: space-between;
         padding: .15rem 0; }}
nav a {{ color: #0b5394; }}
nav span {{ color: #555; }}
table {{ border-collapse: collapse; font-size: .9rem; width: 100%; }}
th, td {{ text-align: left; vertical-align: top; padding: .45rem .6rem;
          border-bottom: 1px solid #e5e5e5; }}
th {{ border-bottom: 2px solid #999; }}
.claims th:nth-child(1) {{ width: 5.5rem; }} .claims th:nth-child(2) {{ width: 34%; }}
.claims th:nth-child(4) {{ width: 8.5rem; }} .claims td:nth-child(1) {{ color: #555; }}
td.yes, td.no, td.open {{ white-space: nowrap; font-weight: 600; }}
td.yes {{ color: #0b6e4f; }} td.no {{ color: #b3400a; }} td.open {{ color: #666; }}
.data, figure span {{ display: block; overflow-x: auto; }}
.data td {{ min-width: 4.5rem; }}
figure {{ margin: 1.6rem 0 1rem; }}
figure input {{ position: absolute; opacity: 0; }}
figure input:focus-visible + span {{ outline: 2px solid #0b5394; }}
img {{ display: block; width: 100%; height: auto; }}
figcaption {{ color: #555; font-size: .9rem; }}
@media (max-width: 44rem) {{
  body {{ margin: 1.2rem auto; padding: 0 1rem; }}
  h1 {{ font-size: 1.35rem; }}
  .claims thead {{ display: none; }}
  .claims tr {{ display: block; padding: .6rem 0; border-bottom: 1px solid #ddd; }}
  .claims td {{ display: block; padding: .1rem 0; border: 0; }}
  .claims td:nth-child(2) {{ font-weight: 600; }}
  .claims td:nth-child(3)::before {{ content: "measured: "; color: #555; }}
  figure input:checked + span img {{ width: 48rem; }}
  figcaption::after {{ content: " Tap the figure to enlarge it, then move it sideways."; }}
}}
</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""
_TITLE = "“Efficient Sparseness-Enforcing Projections”, reproduced"


def write_report(results: Results, directory: Path) -> tuple[list[Claim], list[Path]]:
    """Write report.md and report.html; the figures must be in the directory already.

    Parameters
    ----------
    results : Results
        What was found.
    directory : Path
        Where the figures are, and the report goes.

    Returns
    -------
    tuple
        The claims with their verdicts, and the two files.
    """
    claims = judge(results)
    blocks = _blocks(results, claims, directory)
    markdown = "\n\n".join([f"# {_TITLE}", *(block.markdown() for block in blocks)]) + "\n"
    page = _PAGE.format(title=_TITLE, body="\n".join(block.html() for block in blocks))
    paths = []
    for name, text in (("report.md", markdown), ("report.html", page)):
        path = directory / name
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
        paths.append(path)
    return claims, paths


def _blocks(results: Results, claims: list[Claim], directory: Path) -> list[_Block]:
    parts = [
        *_figures(results, claims, directory),
        *_not_run(results, claims),
        (_Heading("How claims were judged"), "", [_List(_rules(results.settings))]),
        (_Heading("What was run"), "", _protocol(results)),
    ]
    blocks: list[_Block] = [*map(_Paragraph, _summary(results, claims))]
    blocks.append(_Contents([(heading, note) for heading, note, _ in parts]))
    for heading, _, inside in parts:
        blocks += [heading, *inside]
    return blocks


_Part: TypeAlias = tuple[_Heading, str, Sequence[_Block]]


def _figures(results: Results, claims: list[Claim], directory: Path) -> Iterator[_Part]:
    """Give each figure with the claims that it shows."""
    for name, drawing in FIGURES.items():
        if results.of(drawing.experiment):
            shown = [claim for claim in claims if claim.figure == name]
            image = _Image(directory / name, drawing.caption)
            blocks: list[_Block] = [image, _claims_table(shown)]
            if name == "agreement":
                blocks += _disagreements(results.agreement)
            yield _Heading(drawing.title), tally(shown), blocks


def _not_run(results: Results, claims: list[Claim]) -> Iterator[_Part]:
    if left := [claim for claim in claims if not results.of(claim.experiment)]:
        yield _Heading("Experiments that were not run"), tally(left), [_claims_table(left)]


def _protocol(results: Results) -> list[_Block]:
    run = [experiment for experiment in EXPERIMENTS.values() if results.of(experiment.name)]
    return [
        _Paragraph(_settings(results.settings)),
        _Table(
            ("experiment", "n", "target sparseness", "vectors for each n and target", "data"),
            [row for experiment in run for row in protocol_rows(experiment, results.settings)],
        ),
        _Paragraph(_machine()),
    ]


def _summary(results: Results, claims: list[Claim]) -> list[str]:
    settings = results.settings
    protocol = "the full protocol" if settings.full else "the quick protocol"
    return [
        f"The experiments of M. Thom and G. Palm, run by hoyer {hoyer.__version__} with {protocol} "
        f"on vectors with {settings.distribution} entries in {settings.dtype} (seed "
        f"{settings.seed}). Of the paper's {len(claims)} claims: {tally(claims)}.",
        "The paper projects a vector onto a chosen sparseness σ*: it subtracts a number α from all "
        "entries, sets what is then negative to zero, and divides by a number β. The right α is "
        "the zero of an auxiliary function Ψ. Four solvers look for it (Bisection, Newton, "
        "NewtonSqr, Halley); they are compared by how often they evaluate Ψ, each time with a read "
        "of the whole vector. “auto” is hoyer's own search, and not the paper's.",
    ]


def _claims_table(claims: list[Claim]) -> _Table:
    rows = [
        (claim.where, claim.text, str(claim.finding), _shown(claim.finding.verdict))
        for claim in claims
    ]
    return _Table(("where", "claim in the paper", "measured", "verdict"), rows, "claims")


def _rules(settings: Settings) -> list[str]:
    return [
        "An evaluation is a call of Algorithm 1, the one at α = 0 included; the paper speaks "
        "of iterations without saying whether it counts that one. For auto, which is not the "
        "paper's, every read of the vector counts.",
        *rules(settings),
    ]


def _settings(settings: Settings) -> str:
    return (
        f"The entries of the random vectors are {settings.distribution}; the paper does not say "
        "how its own are distributed. It has 1000 vectors for every length and target; here it was "
        f"as many as the table says. “{_lengths([2**2, 2**12])}” are all powers of two from the "
        "first to the last."
    )


def protocol_rows(experiment: AnyExperiment, settings: Settings) -> list[tuple[str, ...]]:
    """Describe the cells of an experiment; lengths next to each other share a row if they can.

    Returns
    -------
    list of tuple
        Name, lengths, targets, vectors in a cell, file.
    """
    columns: dict[int, list[tuple[float, int]]] = {}
    for cell in experiment.cells(settings):
        columns.setdefault(cell.n, []).append((cell.sparseness, cell.vectors))
    rows: list[tuple[str, ...]] = []
    for targets, alike in groupby(columns, key=columns.__getitem__):
        shown = _targets([sparseness for sparseness, _ in targets])
        vectors = " or ".join(map(str, sorted({vectors for _, vectors in targets})))
        rows.append((experiment.name, _lengths([*alike]), shown, vectors, experiment.file))
    return rows


def _lengths(sizes: list[int]) -> str:
    names = [power(n) if n == 2 ** exponent(n) else str(n) for n in sizes]
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"


def _targets(targets: list[float]) -> str:
    """List a few targets; of many say the ends and how many."""
    if len(targets) <= 12:
        return ", ".join(f"{target:g}" for target in targets)
    return f"{targets[0]:g}, {targets[1]:g}, …, {targets[-1]:g} ({len(targets)})"


def _machine() -> str:
    bits = np.finfo(np.longdouble).nmant + 1
    return (
        f"Times and space are in {MEASURED_FILE}; they were measured on {platform.machine()}, as "
        "processor time of one thread, and are all that differs when the run is repeated there. "
        f"Higher precision means long double, with {bits} significant bits here."
    )


def _disagreements(records: list[Agreement]) -> list[_Block]:
    found = [record for record in records if record.disagreements or record.at_fault]
    undefined = sum(record.undefined for record in records)
    if not found:
        text = "No disagreements: all algorithms gave the same result for every vector."
        if undefined:
            text += f" {undefined} vectors have no unique projection and were not compared."
        return [_Paragraph(text)]
    rows = [
        (
            power(record.n),
            f"{record.sparseness:g}",
            f"{record.disagreements} of {record.vectors}",
            f"{scientific(record.hoyer2004)} (vector {record.hoyer2004_vector})",
            f"{scientific(record.potluru2013)} (vector {record.potluru2013_vector})",
            f"{scientific(record.precision)} (vector {record.precision_vector})",
            record.at_fault.replace("+", ", "),
        )
        for record in found
    ]
    header = ("n", "sparseness", "vectors", "Hoyer (2004)", "sorting", "ours, error", "at fault")
    return [_Paragraph("Where results disagree:"), _Table(header, rows)]
