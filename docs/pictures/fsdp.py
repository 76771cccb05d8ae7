"""A sparse weight whose rows two processes share, for the example of FSDP2 in the gallery."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from theme import HERE, LIGHT, drawing

import hoyer

ROWS, COLUMNS = 16, 40


def picture() -> Figure:
    """Draw the weight, with the rows of each process in a colour."""
    x = np.random.default_rng(0).normal(size=(ROWS, COLUMNS))
    weight = np.abs(hoyer.project(x, 0.7, l2="keep"))
    weight /= weight.max()
    figure = Figure(figsize=(6, 4), facecolor="white")
    axis = figure.add_axes((0.03, 0.12, 0.94, 0.76))
    for row, column in np.argwhere(weight > 0):
        colour = LIGHT.blue if row < ROWS // 2 else LIGHT.orange
        size = 0.35 + 0.6 * weight[row, column]
        square = (column + 0.5 - size / 2, row + 0.5 - size / 2)
        axis.add_patch(filled_square(square, size, colour))
    axis.axhline(ROWS / 2, color=LIGHT.ink, linewidth=1.5, linestyle="--")
    axis.set(xlim=(0, COLUMNS), ylim=(ROWS, 0), xticks=[], yticks=[])
    axis.spines[:].set_visible(True)
    figure.text(0.5, 0.93, "rows of process 0", color=LIGHT.blue, ha="center", fontsize=14)
    figure.text(0.5, 0.04, "rows of process 1", color=LIGHT.orange, ha="center", fontsize=14)
    return figure


def filled_square(corner: tuple[float, float], size: float, colour: str) -> Rectangle:
    """Return a square."""
    return Rectangle(corner, size, size, color=colour, linewidth=0)


with drawing(LIGHT):
    picture().savefig(HERE / "fsdp.png", dpi=100)
