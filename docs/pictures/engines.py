"""Families and engines: who computes for which kind of array."""

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from theme import Theme, draw

ENGINES = ("compiled core\n(C++)", "Triton kernels", "plain array\noperations", "search in parts")
FAMILIES = {
    "NumPy, lists, pandas": (1, 0, 0, 0),
    "PyTorch, CPU": (1, 0, 0, 0),
    "PyTorch, CUDA": (0, 1, 2, 0),
    "PyTorch, other devices": (0, 0, 1, 0),
    "DTensors (FSDP2, TP)": (1, 1, 2, 1),
    "JAX, CPU": (1, 0, 0, 1),
    "JAX, GPU and TPU": (0, 0, 1, 1),
    "Dask": (1, 0, 2, 1),
    "CuPy, Array API": (0, 0, 1, 0),
}


def picture(theme: Theme) -> Figure:
    """Draw a table of dots."""
    rows, columns = len(FAMILIES), len(ENGINES)
    figure = Figure(figsize=(7.6, 4.3))
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set(xlim=(-2.1, columns), ylim=(rows + 1.15, -1.1))
    axis.set_axis_off()
    for column, name in enumerate(ENGINES):
        axis.text(column + 0.5, -0.42, name, ha="center", va="center", fontsize=10, weight="bold")
    for row, (name, cells) in enumerate(FAMILIES.items()):
        if row % 2 == 0:
            axis.add_patch(Rectangle((-2.1, row), columns + 2.1, 1, color=theme.fill, linewidth=0))
        axis.text(-2.0, row + 0.5, name, va="center", fontsize=10)
        for column, cell in enumerate(cells):
            if cell:
                full = theme.blue if cell == 1 else "none"
                axis.plot(column + 0.5, row + 0.5, "o", markersize=11, color=full,
                          markeredgecolor=theme.blue, markeredgewidth=2)  # fmt: skip
    words = "● does the work; ○ takes over where ● cannot"
    axis.text(-2.0, rows + 0.6, words, fontsize=9, color=theme.ink, va="center")
    return figure


draw("engines", picture)
