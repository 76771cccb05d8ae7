"""The threshold: what sticks out above alpha, divided by beta, is the result."""

import numpy as np
from matplotlib.figure import Figure
from theme import Theme, draw

import hoyer

x = np.sort(np.random.default_rng(5).gamma(1.3, size=18))[::-1]
found = hoyer.solve(x, 0.65, l2="keep")


def picture(theme: Theme) -> Figure:
    """Draw the vector with its threshold, and the result beside it."""
    figure = Figure(figsize=(8.4, 2.9), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    shift, places = float(found.shift), np.arange(x.size)
    left.bar(places, np.minimum(x, shift), color=theme.faint, alpha=0.45, width=0.8)
    above = np.maximum(x - shift, 0)
    left.bar(places, above, bottom=np.minimum(x, shift), color=theme.blue, width=0.8)
    left.axhline(shift, color=theme.orange, linewidth=1.8)
    left.text(x.size - 0.4, shift, "α", color=theme.orange, va="bottom", ha="right", fontsize=14)
    left.set_title(f"x: sparseness {float(hoyer.sparseness(x)):.2f}", fontsize=10.5)
    right.bar(places, found.value, color=theme.blue, width=0.8)
    kept = int(found.support_size)
    right.set_title(f"max(x – α, 0)/β: sparseness 0.65, {kept} of {x.size} entries", fontsize=10.5)
    for axis in (left, right):
        axis.set_xticks([])
        axis.set_xlabel("entries, in order of their size")
    return figure


draw("threshold", picture)
