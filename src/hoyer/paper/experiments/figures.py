"""The figures of a run, as PNG and SVG. Needs matplotlib, which the extra `cli` brings."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hoyer.paper.experiments.counts import ALL_SOLVERS, NAMES, PAPER_SOLVERS, Counts
from hoyer.paper.experiments.dimensions import SPACE_SOLVERS
from hoyer.paper.experiments.files import replacing
from hoyer.paper.experiments.psi import CURVE, ENTRIES, ZERO, Point
from hoyer.paper.experiments.results import EXPERIMENTS, Results
from hoyer.paper.experiments.settings import exponent
from hoyer.paper.experiments.space import BUFFER_BYTES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "Drawing", "draw_figures", "require_matplotlib"]

# The colours of Okabe and Ito, which people with any kind of colour vision can tell apart; lines
# differ in marker and dashes as well.
_COLORS = {
    "bisection": "#000000",
    "newton": "#0072B2",
    "newton_sqr": "#D55E00",
    "halley": "#009E73",
    "auto": "#AA4499",
}
_MARKERS = {"bisection": "s", "newton": "o", "newton_sqr": "D", "halley": "^", "auto": "v"}
_DASHES = {"bisection": "-", "newton": "--", "newton_sqr": "-", "halley": "-.", "auto": ":"}
_LABELS = {**NAMES, "auto": "auto (ours)"}
_GREY = "#777777"

_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.labelsize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    # The same bytes in every run.
    "svg.hashsalt": "hoyer",
}
_EVALUATIONS = "evaluations of the auxiliary function"


def require_matplotlib() -> None:
    """Say what to install if matplotlib is missing.

    Raises
    ------
    ModuleNotFoundError
        Without matplotlib.
    """
    try:
        import matplotlib  # noqa: F401, PLC0415 - an extra
    except ImportError:
        raise ModuleNotFoundError(
            "figures need matplotlib: pip install 'hoyer[cli]'", name="matplotlib"
        ) from None


def draw_figures(results: Results, directory: Path) -> list[Path]:
    """Draw every figure that there are results for.

    Parameters
    ----------
    results : Results
        What to draw.
    directory : Path
        Where to put the files.

    Returns
    -------
    list of Path
        The files: a PNG and an SVG for each figure.

    Raises
    ------
    ModuleNotFoundError
        Without matplotlib.
    """
    require_matplotlib()
    from matplotlib import rc_context  # noqa: PLC0415

    paths = []
    with rc_context(_STYLE):
        for name, drawing in FIGURES.items():
            if not results.of(drawing.experiment):
                continue
            figure = drawing.build(results)
            for suffix, metadata in ((".png", {"Software": None}), (".svg", {"Date": None})):
                path = directory / (name + suffix)
                with replacing(path) as temporary:
                    figure.savefig(temporary, format=suffix[1:], dpi=130, metadata=metadata)
                paths.append(path)
    return paths


def _figure(width: float, height: float) -> "Figure":
    # Without pyplot there is no state, and nothing asks for a screen.
    from matplotlib.figure import Figure  # noqa: PLC0415

    return Figure(figsize=(width, height), layout="constrained")


def _subtitle(results: Results, extra: str = "") -> str:
    settings = results.settings
    return f"{settings.distribution} entries, {settings.dtype}{extra}"


def _titled(figure: "Figure", title: str, below: str) -> None:
    figure.suptitle(f"{title}\n", fontsize=12, fontweight="bold", x=0.01, ha="left")
    figure.text(0.012, 0.985, "\n" + below, va="top", fontsize=9.5, color="#555555")


# ---- Figure 1 ----


def _psi(results: Results) -> "Figure":
    figure = _figure(8, 6.6)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    points = results.psi
    _titled(
        figure,
        "The auxiliary function and the ways to its zero",
        _subtitle(results, f", n = {points[0].n}, target sparseness {points[0].sparseness:g}"),
    )
    _psi_curves(top, points)
    _psi_paths(bottom, points)
    bottom.set_xlabel("shift α (marks above: the entries of x)")
    return figure


def _of(points: list[Point], series: str) -> list[Point]:
    return [point for point in points if point.series == series]


def _psi_curves(axes: "Axes", points: list[Point]) -> None:
    curve, entries = _of(points, CURVE), [point.alpha for point in _of(points, ENTRIES)]
    (zero,) = _of(points, ZERO)
    alpha = np.array([point.alpha for point in curve])
    values = np.array([point.psi for point in curve])
    slopes = np.array([point.dpsi for point in curve])
    below, above = _neighbours(entries, zero.alpha)
    top = 1.08 * float(values.max())
    # The derivative has a pole at the second largest entry: the scale is that of the rest.
    scale = float(0.5 * top / np.quantile(np.abs(slopes), 0.8))
    axes.axhline(0, color=_GREY, linewidth=0.8)
    axes.axvspan(below, above, color="#F0E442", alpha=0.45, linewidth=0)
    axes.plot(alpha, values, color=_COLORS["newton"], linewidth=2, label="Ψ(α)")
    label = f"Ψ′(α) × {scale:.2g}"
    axes.plot(alpha, slopes * scale, color=_COLORS["newton_sqr"], linewidth=1.3, label=label)
    axes.plot([zero.alpha], [0], "o", color="black", markersize=7, zorder=5, label="zero α*")
    axes.plot(entries, np.full(len(entries), -top), "|", color="black", markersize=9, clip_on=False)
    for place, name, side in ((below, "$x_j$", "right"), (above, "$x_k$", "left")):
        shift = -4 if side == "right" else 4
        axes.annotate(
            name,
            (place, -top),
            xytext=(shift, 12),
            textcoords="offset points",
            ha=side,
            fontsize=12,
        )
    axes.set_ylim(-top, top)
    axes.tick_params(axis="x", length=0)  # the marks there are the entries of x
    axes.grid(visible=False)
    axes.legend(loc="upper right")
    axes.set_ylabel("Ψ and its derivative")


def _neighbours(entries: list[float], alpha: float) -> tuple[float, float]:
    """Return the entries next to alpha; 0 if none is below."""
    below = max((entry for entry in entries if entry <= alpha), default=0.0)
    return below, min(entry for entry in entries if entry > alpha)


def _psi_paths(axes: "Axes", points: list[Point]) -> None:
    entries = [point.alpha for point in _of(points, ENTRIES)]
    (zero,) = _of(points, ZERO)
    axes.axvspan(*_neighbours(entries, zero.alpha), color="#F0E442", alpha=0.45, linewidth=0)
    longest = 0
    for row, solver in enumerate(PAPER_SOLVERS):
        path = _of(points, solver)
        longest = max(longest, len(path))
        # A little apart, so that steps which several solvers share can be seen.
        height = np.arange(1, len(path) + 1) + 0.09 * (row - 1.5)
        axes.plot(
            [point.alpha for point in path],
            height,
            _DASHES[solver],
            marker=_MARKERS[solver],
            color=_COLORS[solver],
            linewidth=1.2,
            markersize=5,
            label=f"{_LABELS[solver]} ({len(path)})",
        )
    axes.set_yticks(range(1, longest + 1))
    axes.set_ylim(longest + 0.4, 0.6)
    axes.set_ylabel("evaluation")
    axes.grid(visible=False)
    axes.legend(loc="lower left", title="solver (evaluations)")


# ---- Figures 2 and 3 ----


def _lines(axes: "Axes", records: list[Counts], place: Callable[[Counts], float]) -> None:
    """Draw mean and spread for every solver."""
    for solver in ALL_SOLVERS:
        series = [record for record in records if record.solver == solver]
        x = np.array([place(record) for record in series])
        mean = np.array([record.mean for record in series])
        sd = np.array([record.sd for record in series])
        color = _COLORS[solver]
        axes.fill_between(x, mean - sd, mean + sd, color=color, alpha=0.1, linewidth=0)
        axes.plot(
            x,
            mean,
            _DASHES[solver],
            marker=_MARKERS[solver],
            color=color,
            label=_LABELS[solver] + (": reads of the vector" if solver == "auto" else ""),
        )
    axes.set_ylim(bottom=0)
    axes.set_ylabel(_EVALUATIONS)
    axes.legend(loc="upper left", ncols=2)


def _solvers(results: Results) -> "Figure":
    figure = _figure(8, 5)
    axes = figure.subplots()
    records = results.solvers
    extra = f", n = {records[0].n}, {_numbers(records)}; line: mean, band: ± 1 standard deviation"
    _titled(figure, "Evaluations over the target sparseness", _subtitle(results, extra))
    _lines(axes, records, lambda record: record.sparseness)
    axes.set_xlabel("target sparseness σ*")
    axes.set_xlim(0.19, 0.985)
    axes.set_ylim(top=1.3 * axes.get_ylim()[1])
    return figure


def _numbers(records: list[Counts]) -> str:
    least, most = (pick(record.vectors for record in records) for pick in (min, max))
    return f"{most} vectors each" if least == most else f"{most} to {least} vectors each"


def _dimensions(results: Results) -> "Figure":
    figure = _figure(8, 5)
    axes = figure.subplots()
    records = results.dimensions
    extra = f", target sparseness {records[0].sparseness:g}, {_numbers(records)}"
    extra += "; line: mean, band: ± 1 standard deviation"
    _titled(figure, "Evaluations over the length of the vectors", _subtitle(results, extra))
    _lines(axes, records, lambda record: record.n)
    _length_axis(axes, records)
    return figure


def _length_axis(axes: "Axes", records: list[Counts], least: int = 4) -> None:
    """Make the horizontal axis that of n, in powers of two."""
    axes.set_xscale("log", base=2)
    exponents = sorted({exponent(record.n) for record in records if record.n >= least})
    shown = [k for k in exponents if k % 2 == 0]
    axes.set_xticks([2**k for k in shown], [f"$2^{{{k}}}$" for k in shown])
    axes.minorticks_off()
    axes.set_xlabel("length n of the vectors")


# ---- Time and space ----


def _time_and_space(results: Results) -> "Figure":
    figure = _figure(10, 4.6)
    left, right = figure.subplots(1, 2, sharex=True)
    _titled(
        figure,
        "Time and space",
        _subtitle(results, ", target sparseness 0.9, projections in place, one thread"),
    )
    _times(left, results)
    _spaces(right, results)
    return figure


def _shortest_shown(results: Results) -> int:
    """Return where the figure starts: shorter vectors show nothing but the cost of a call."""
    return 2**10 if max(record.n for record in results.dimensions) >= 2**14 else 4


def _times(axes: "Axes", results: Results) -> None:
    axes.set_title("time per entry", loc="left", fontsize=10)
    for solver in ALL_SOLVERS:
        seconds = results.measured("dimensions", solver, "s")
        lengths = [n for n in sorted(seconds) if n >= _shortest_shown(results)]
        axes.plot(
            lengths,
            [1e9 * seconds[n] / n for n in lengths],
            _DASHES[solver],
            marker=_MARKERS[solver],
            color=_COLORS[solver],
            label=_LABELS[solver],
        )
    _length_axis(axes, results.dimensions, _shortest_shown(results))
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    ticks = [tick for k in range(-1, 5) for tick in (10.0**k, 2 * 10.0**k, 5 * 10.0**k)]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_ylim(low, 3 * high)
    axes.minorticks_off()
    axes.set_ylabel("nanoseconds per entry")
    axes.legend(loc="upper right", ncols=2)


def _spaces(axes: "Axes", results: Results) -> None:
    axes.set_title("extra space", loc="left", fontsize=10)
    itemsize = np.dtype(results.settings.dtype).itemsize
    least = _shortest_shown(results)
    lengths = sorted({record.n for record in results.dimensions if record.n >= least})
    copies = [n * itemsize / 1024 for n in lengths]
    axes.plot(lengths, copies, "--", color=_GREY, label="one copy of the vector")
    bound = BUFFER_BYTES // 1024
    axes.axhline(bound, linestyle=(0, (6, 2)), color=_COLORS["auto"], linewidth=1.2)
    axes.annotate(
        f"bounded by {_size(bound)} per thread",
        (lengths[0], bound),
        xytext=(0, 4),
        textcoords="offset points",
        color=_COLORS["auto"],
    )
    page = 4.0
    for solver in SPACE_SOLVERS:
        found = results.measured("dimensions", solver, "byte")
        axes.plot(
            sorted(found),
            [max(found[n] / 1024, page) for n in sorted(found)],
            _DASHES[solver],
            marker=_MARKERS[solver],
            color=_COLORS[solver],
            label=_LABELS[solver],
        )
    _length_axis(axes, results.dimensions, least)
    axes.set_yscale("log", base=2)
    top = max(int(max(copies)).bit_length(), 12)
    ticks = [2**k for k in range(2, top + 1, 4)]
    axes.set_yticks(ticks, [_size(tick) for tick in ticks])
    axes.set_ylim(bottom=2.5)
    axes.set_ylabel("extra memory (4 KiB: a page, or nothing)")
    axes.legend(loc="upper left")


def _size(kibibytes: int) -> str:
    for unit in ("KiB", "MiB"):
        if kibibytes < 1024:
            return f"{kibibytes} {unit}"
        kibibytes //= 1024
    return f"{kibibytes} GiB"


# ---- Heat maps ----


def _heat_map(axes: "Axes", records: list[Any], column: str, limits: tuple[float, float]) -> Any:
    """Draw a column over lengths and targets, in colours on a logarithmic scale.

    A cell reaches half of the way to the next target that was run for its length. It is grey
    without a number, and white if the number is infinite.
    """
    from matplotlib import colormaps  # noqa: PLC0415
    from matplotlib.colors import LogNorm  # noqa: PLC0415

    lengths = sorted({record.n for record in records})
    margin = float(np.diff(sorted({record.sparseness for record in records})).min()) / 2
    norm = LogNorm(*limits)
    colours = colormaps["viridis"].with_extremes(bad="#bbbbbb", over="#ffffff")
    for n in lengths:
        cells = sorted((r for r in records if r.n == n), key=lambda record: record.sparseness)
        values = np.array([[getattr(record, column)] for record in cells])
        # Exact agreement has no logarithm: it is as dark as the scale goes.
        values = np.clip(values, limits[0], 2 * limits[1])
        mesh = axes.pcolormesh(
            [exponent(n) - 0.5, exponent(n) + 0.5],
            _borders([record.sparseness for record in cells], margin),
            np.ma.masked_invalid(values),
            norm=norm,
            cmap=colours,
            rasterized=True,
        )
    axes.grid(visible=False)
    ticks = [exponent(n) for n in lengths if exponent(n) % 4 == 2]
    axes.set_xticks(ticks, [f"$2^{{{k}}}$" for k in ticks])
    axes.set_xlabel("length n")
    return mesh


def _borders(places: list[float], margin: float) -> NDArray[np.float64]:
    """Return the middles between neighbours, and a margin beyond the first and the last."""
    middles = (np.array(places[1:]) + places[:-1]) / 2
    return np.concatenate(([places[0] - margin], middles, [places[-1] + margin]))


def _limits(records: list[Any], columns: tuple[str, ...]) -> tuple[float, float]:
    """Return what the colours cover: nearly all that is there, and at least a decade."""
    values = np.array([getattr(record, column) for record in records for column in columns])
    values = values[np.isfinite(values) & (values > 0)]
    low = float(np.quantile(values, 0.01)) if values.size else 1e-16
    return low, max(float(values.max(initial=0)), 10 * low)


def _heat_maps(figure: "Figure", records: list[Any], titles: dict[str, str], label: str) -> None:
    """Draw columns side by side, in the same colours."""
    panels = figure.subplots(1, len(titles), sharey=True)
    limits = _limits(records, tuple(titles))
    for axes, (column, title) in zip(panels, titles.items(), strict=True):
        mesh = _heat_map(axes, records, column, limits)
        axes.set_title(title, loc="left", fontsize=10)
    panels[0].set_ylabel("target sparseness σ*")
    bar = figure.colorbar(mesh, ax=panels, label=label, pad=0.015, aspect=30, extend="min")
    bar.outline.set_visible(False)


def _agreement(results: Results) -> "Figure":
    figure = _figure(10, 4.8)
    below = "; largest deviation in each cell, relative to the largest entry"
    _titled(figure, "Three algorithms, one result", _subtitle(results, below))
    titles = {
        "hoyer2004": "Hoyer (2004) against ours",
        "potluru2013": "Potluru et al. (2013) against ours",
        "precision": "ours against long double",
    }
    _heat_maps(figure, results.agreement, titles, "largest deviation (white: no result)")
    return figure


def _gradient(results: Results) -> "Figure":
    figure = _figure(10, 4.8)
    below = "; deviations relative to max|y| / β, the scale of the product"
    _titled(figure, "The gradient product against central differences", _subtitle(results, below))
    titles = {"deviation": "largest deviation in each cell", "median": "median over the vectors"}
    _heat_maps(figure, results.gradient, titles, "deviation (grey: only kinks)")
    return figure


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure to be drawn."""

    experiment: str
    """Which experiment it needs."""
    title: str
    """What the part of the report with this figure is called."""
    caption: str
    build: Callable[[Results], "Figure"]


FIGURES: dict[str, Drawing] = {
    "psi": Drawing(
        "psi",
        EXPERIMENTS["psi"].title,
        "The auxiliary function Ψ and its derivative (scaled) for a random vector x. Ψ′ steps at "
        "the entries of x; the zero lies between two neighbours among them (shaded). Below: where "
        "each solver evaluates Ψ, first at α = 0, then at the middle of the bracket.",
        _psi,
    ),
    "solvers": Drawing(
        "solvers",
        EXPERIMENTS["solvers"].title,
        "Evaluations of the auxiliary function until the solution is found, over the target "
        "sparseness. For auto, hoyer's own search, every read of the vector counts.",
        _solvers,
    ),
    "dimensions": Drawing(
        "dimensions",
        EXPERIMENTS["dimensions"].title,
        "Evaluations of the auxiliary function until the solution is found, over the length of the "
        "vectors. For auto, hoyer's own search, every read of the vector counts.",
        _dimensions,
    ),
    "time_and_space": Drawing(
        "dimensions",
        "Theorem 1: time and space",
        "Projections in place. Left: time per entry, the overhead of a call included. Right: by "
        "how much the resident memory grows, in pages of 4 KiB. The paper's solvers need nothing "
        "that grows with the vector; the buffer of auto does, and is bounded by "
        f"{BUFFER_BYTES // 2**20} MiB for each thread.",
        _time_and_space,
    ),
    "agreement": Drawing(
        "agreement",
        EXPERIMENTS["agreement"].title,
        "The largest deviation between the results of the algorithms, and the largest error of "
        "ours when it is checked in higher precision.",
        _agreement,
    ),
    "gradient": Drawing(
        "gradient",
        EXPERIMENTS["gradient"].title,
        "The gradient product in a random direction against the central difference quotient in "
        "float64, whose own rounding error is what the map shows.",
        _gradient,
    ),
}
"""The figures of a report, in its order."""
