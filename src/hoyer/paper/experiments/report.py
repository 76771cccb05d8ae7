"""The report of a run: the same blocks as Markdown and as a page of HTML that stands alone."""

import base64
import html
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Protocol

import numpy as np

import hoyer
from hoyer.paper.experiments.agreement import Agreement
from hoyer.paper.experiments.claims import Claim, Verdict, judge, rules
from hoyer.paper.experiments.experiment import AnyExperiment
from hoyer.paper.experiments.figures import FIGURES
from hoyer.paper.experiments.files import replacing
from hoyer.paper.experiments.results import EXPERIMENTS, Results
from hoyer.paper.experiments.runner import MEASURED_FILE
from hoyer.paper.experiments.settings import Settings, exponent, power

__all__ = ["protocol_rows", "write_report"]

_SIGNS = {Verdict.YES: "✓", Verdict.NO: "✗", Verdict.OPEN: "–"}


def _shown(verdict: Verdict) -> str:
    return f"{_SIGNS[verdict]} {verdict}"


class _Block(Protocol):
    def markdown(self) -> str: ...
    def html(self) -> str: ...


@dataclass(frozen=True, slots=True)
class _Heading:
    text: str

    def markdown(self) -> str:
        return f"## {self.text}"

    def html(self) -> str:
        return f"<h2>{html.escape(self.text)}</h2>"


@dataclass(frozen=True, slots=True)
class _Paragraph:
    text: str

    def markdown(self) -> str:
        return self.text

    def html(self) -> str:
        return f"<p>{html.escape(self.text)}</p>"


@dataclass(frozen=True, slots=True)
class _List:
    items: Sequence[str]

    def markdown(self) -> str:
        return "\n".join(f"- {item}" for item in self.items)

    def html(self) -> str:
        return f"<ul>{''.join(f'<li>{html.escape(item)}</li>' for item in self.items)}</ul>"


@dataclass(frozen=True, slots=True)
class _Table:
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        return "\n".join(f"| {' | '.join(map(self._escaped, line))} |" for line in lines)

    @staticmethod
    def _escaped(cell: str) -> str:
        return cell.replace("|", "\\|")

    def html(self) -> str:
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in self.header)
        body = "".join(f"<tr>{''.join(map(self._cell, row))}</tr>" for row in self.rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    @staticmethod
    def _cell(cell: str) -> str:
        kinds = (v.name.lower() for v in Verdict if cell == _shown(v))
        mark = "".join(f' class="{kind}"' for kind in kinds)
        return f"<td{mark}>{html.escape(cell)}</td>"


@dataclass(frozen=True, slots=True)
class _Image:
    path: Path
    """Of the figure, without its suffix."""
    caption: str

    def markdown(self) -> str:
        return f"![{self.path.name}]({self.path.name}.png)\n\n*{self.caption}*"

    def html(self) -> str:
        data = base64.b64encode(self.path.with_name(self.path.name + ".svg").read_bytes()).decode()
        caption = html.escape(self.caption)
        return (
            f'<figure><img src="data:image/svg+xml;base64,{data}" alt="{caption}">'
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
       max-width: 62rem; margin: 2.5rem auto; padding: 0 1.2rem; }}
h1 {{ font-size: 1.7rem; line-height: 1.25; }}
h2 {{ font-size: 1.2rem; margin-top: 2.4rem; border-bottom: 1px solid #ddd; }}
table {{ border-collapse: collapse; font-size: .86rem; width: 100%; }}
th, td {{ text-align: left; vertical-align: top; padding: .45rem .6rem;
          border-bottom: 1px solid #e5e5e5; }}
th {{ border-bottom: 2px solid #999; }}
td.yes, td.no, td.open {{ white-space: nowrap; font-weight: 600; }}
td.yes {{ color: #0b6e4f; }} td.no {{ color: #b3400a; }} td.open {{ color: #666; }}
figure {{ margin: 1.6rem 0 2.4rem; }}
img {{ width: 100%; height: auto; }}
figcaption {{ color: #555; font-size: .9rem; }}
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
    run = [experiment for experiment in EXPERIMENTS.values() if results.of(experiment.name)]
    blocks: list[_Block] = [
        _Paragraph(_summary(results, claims)),
        _Heading("What the paper claims, and what was measured"),
        _claims_table(claims),
        _Heading("How claims were judged"),
        _List(_rules(results.settings)),
        _Heading("What was run"),
        _Paragraph(_settings(results.settings)),
        _Table(
            ("experiment", "n", "target sparseness", "vectors for each n and target", "data"),
            [row for experiment in run for row in protocol_rows(experiment, results.settings)],
        ),
        _Paragraph(_machine()),
    ]
    if results.agreement:
        blocks += [_Heading("Disagreements"), *_disagreements(results.agreement)]
    blocks.append(_Heading("Figures"))
    for name, (needs, caption, _) in FIGURES.items():
        if results.of(needs):
            blocks.append(_Image(directory / name, caption))
    return blocks


def _summary(results: Results, claims: list[Claim]) -> str:
    count = {
        verdict: sum(claim.finding.verdict == verdict for claim in claims) for verdict in Verdict
    }
    settings = results.settings
    protocol = "the full protocol" if settings.full else "the quick protocol"
    return (
        f"The experiments of M. Thom and G. Palm, run by hoyer {hoyer.__version__} with {protocol} "
        f"on vectors with {settings.distribution} entries in {settings.dtype} (seed "
        f"{settings.seed}): of {len(claims)} claims {count[Verdict.YES]} were reproduced, "
        f"{count[Verdict.NO]} were not, {count[Verdict.OPEN]} were not tested."
    )


def _claims_table(claims: list[Claim]) -> _Table:
    rows = []
    for claim in claims:
        finding = claim.finding
        rows.append((claim.where, claim.text, str(finding), _shown(finding.verdict)))
    return _Table(("where", "claim in the paper", "measured", "verdict"), rows)


def _rules(settings: Settings) -> list[str]:
    return [
        "An evaluation is a call of Algorithm 1, the one at alpha = 0 included; the paper speaks "
        "of iterations without saying whether it counts that one. For auto, which is not the "
        "paper's, every read of the vector counts.",
        *rules(settings),
    ]


def _settings(settings: Settings) -> str:
    return (
        f"The entries of the random vectors are {settings.distribution}; the paper does not say "
        "how its own are distributed. It has 1000 vectors for every length and target; here it was "
        "as many as the table says. “2^2 … 2^12” are all powers of two from the first to the last."
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
        text = "None: all algorithms gave the same result for every vector."
        if undefined:
            text += f" {undefined} vectors have no unique projection and were not compared."
        return [_Paragraph(text)]
    rows = [
        (
            power(record.n),
            f"{record.sparseness:g}",
            f"{record.disagreements} of {record.vectors}",
            f"{record.hoyer2004:.1e} (vector {record.hoyer2004_vector})",
            f"{record.potluru2013:.1e} (vector {record.potluru2013_vector})",
            f"{record.precision:.1e} (vector {record.precision_vector})",
            record.at_fault.replace("+", ", "),
        )
        for record in found
    ]
    header = ("n", "sparseness", "vectors", "Hoyer (2004)", "sorting", "ours, error", "at fault")
    return [_Table(header, rows)]
