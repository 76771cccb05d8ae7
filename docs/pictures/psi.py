"""The function Psi: exact steps from pivots on either side lead to lower bounds of its zero."""

import numpy as np
from matplotlib.figure import Figure
from theme import Theme, draw

import hoyer

x = np.sort(np.random.default_rng(2).gamma(1.5, size=14))
SPARSENESS = 0.7
PIVOTS = (0.05, 0.65, 1.33, 1.8)


def ratio(a: float) -> float:
    """Return Psi plus the ratio that is asked for."""
    q = np.maximum(x - a, 0)
    return float(q.sum() / np.linalg.norm(q))


def exact_step(pivot: float, k: float) -> float:
    """Return the shift of the support above a pivot."""
    above = x[x > pivot]
    return float(above.mean() - np.sqrt(above.var() * k / (above.size - k)))


def picture(theme: Theme) -> Figure:
    """Draw the function, its zero, the entries and some steps."""
    l1, l2 = hoyer.target_norms(x.size, SPARSENESS)
    k, zero = (l1 / l2) ** 2, float(hoyer.solve(x, SPARSENESS).shift)
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    axis = figure.subplots()
    a = np.linspace(-0.1, 2.75, 600)
    axis.plot(a, [ratio(t) - l1 / l2 for t in a], color=theme.blue, linewidth=2.4)
    axis.axhline(0, color=theme.faint, linewidth=1)
    axis.axvline(zero, color=theme.ink, linewidth=1, linestyle=":")
    axis.plot(x[x < 2.8], np.full((x < 2.8).sum(), -0.98), "|", color=theme.ink, markersize=12)
    axis.text(2.72, -0.9, "entries of x", ha="right", va="bottom", fontsize=9, color=theme.faint)
    for number, pivot in enumerate(PIVOTS):
        step, height = exact_step(pivot, k), -0.2 - 0.14 * number
        axis.plot([pivot], [ratio(pivot) - l1 / l2], "o", color=theme.orange, markersize=7)
        axis.plot(
            [pivot, pivot], [ratio(pivot) - l1 / l2, height], color=theme.orange, linewidth=0.8
        )
        arrow = {
            "arrowstyle": "-|>",
            "color": theme.orange,
            "linewidth": 1.8,
            "shrinkA": 0,
            "shrinkB": 0,
        }
        axis.annotate("", (step, height), (pivot, height), arrowprops=arrow)
    axis.plot([zero], [0], "o", color=theme.ink, markersize=8, zorder=5)
    axis.annotate("α, the zero", (zero, 0), (zero + 0.1, 0.22), fontsize=11)
    axis.text(0.35, 1.3, "Ψ(a)", color=theme.blue, fontsize=13)
    words = "pivots (dots) and where their\nexact steps lead (arrows):\nnever to the right of α"
    axis.text(1.75, 0.85, words, color=theme.orange, fontsize=10)
    axis.set(xlabel="a", xlim=(-0.12, 2.8), ylim=(-1.05, 1.75))
    return figure


draw("psi", picture)
