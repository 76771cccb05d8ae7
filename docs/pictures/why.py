"""Why: a penalty has to be tuned for every data set, a sparseness is asked for.

Left: the sparseness of ``prox`` of an L1 penalty (soft thresholding) over the size of the penalty,
for three kinds of data. Right: that of `hoyer.project` over the sparseness that was asked for. On
phones, one stands below the other.
"""

from functools import partial

import numpy as np
from matplotlib.figure import Figure
from theme import Theme, draw

import hoyer

rng = np.random.default_rng(0)
DATA = {
    "weights of a layer": 0.15 * rng.normal(size=1000),
    "pixels": rng.uniform(size=1000),
    "word counts": rng.pareto(2.5, size=1000),
}


def picture(theme: Theme, *, narrow: bool) -> Figure:
    """Draw both side by side, or one below the other."""
    figure = Figure(figsize=(4.2, 6.2) if narrow else (8.4, 3.1), layout="constrained")
    left, right = figure.subplots(*((2, 1) if narrow else (1, 2)), sharey=True)
    penalties, targets = np.geomspace(0.01, 2, 60), np.linspace(0.05, 0.98, 60)
    colours = theme.blue, theme.orange, theme.green
    for colour, style, (name, x) in zip(colours, ("-", "--", ":"), DATA.items(), strict=True):
        shrunk = np.maximum(abs(x) - penalties[:, None], 0)
        found = np.where(shrunk.any(axis=1), hoyer.sparseness(shrunk), np.nan)
        line = {"color": colour, "linestyle": style, "linewidth": 2.2, "label": name}
        left.plot(penalties, found, **line)
        right.plot(targets, hoyer.sparseness(hoyer.project(np.tile(x, (60, 1)), targets)), **line)
    left.set(xscale="log", xlabel="penalty λ", ylabel="sparseness you get", ylim=(0, 1.03))
    left.set_title("an L1 penalty: tune λ for each data set", fontsize=10.5)
    right.set(xlabel="sparseness you ask for", xlim=(0, 1.02))
    if narrow:
        right.set_ylabel("sparseness you get")
    right.set_title("hoyer.project: you get what you ask for", fontsize=10.5)
    left.legend(fontsize=9, loc="upper left")
    return figure


draw("why", partial(picture, narrow=False))
draw("why-narrow", partial(picture, narrow=True))
