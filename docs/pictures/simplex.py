"""Alpha and beta in three dimensions: simplex and sphere, and the circle in which they meet."""

import numpy as np
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d import Axes3D
from theme import Theme, draw

import hoyer

SPARSENESS = (0.3, 0.6)
X = np.array([1.15, 0.95, 0.4])
DIAGONAL = np.ones(3) / np.sqrt(3)
AXES = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]) / np.sqrt([[2.0], [6.0]])


def circle(sparseness: float) -> np.ndarray:
    """Return the vectors of length 1 and of this sparseness, NaN where an entry is negative."""
    l1, _ = hoyer.target_norms(3, sparseness)
    turn = np.linspace(0, 2 * np.pi, 721)[:, None]
    centre, radius = l1 / 3 * np.ones(3), np.sqrt(1 - l1**2 / 3)
    points = centre + radius * (np.cos(turn) * AXES[0] + np.sin(turn) * AXES[1])
    return np.where((points >= -1e-9).all(axis=1, keepdims=True), points, np.nan)


def picture(theme: Theme) -> Figure:
    """Draw one octant of the sphere with circles, and the way of x to its projection."""
    figure = Figure(figsize=(8.6, 4.3))
    figure.subplots_adjust(0, 0, 1, 1, wspace=0)
    for place, sparseness in enumerate(SPARSENESS, 1):
        axis = figure.add_subplot(1, 2, place, projection="3d", computed_zorder=False)
        sphere(axis, theme)
        l1, _ = hoyer.target_norms(3, sparseness)
        corners = l1 * np.vstack([np.eye(3), [1, 0, 0]])
        axis.plot(*corners.T, color=theme.green, linewidth=1.6)
        axis.plot(*circle(sparseness).T, color=theme.blue, linewidth=3)
        way(axis, theme, sparseness)
        axis.set(xlim=(0, 1.45), ylim=(0, 1.45), zlim=(0, 1.45))
        axis.text2D(0.02, 0.82, f"sparseness {sparseness}", transform=axis.transAxes, fontsize=11)
        axis.set_axis_off()
        axis.set_box_aspect((1, 1, 1), zoom=0.94)
        axis.view_init(elev=26, azim=32)
    words = (
        "blue: the vectors of length 1 and this sparseness; green: those that sum to λ₁;\n"
        "orange: from x along the diagonal (shift α), then onto the sphere (scale β)"
    )
    figure.text(0.5, -0.02, words, ha="center", color=theme.ink, fontsize=9.5)
    return figure


def sphere(axis: Axes3D, theme: Theme) -> None:
    """Draw the octant and the axes of coordinates."""
    u, v = np.meshgrid(np.linspace(0, np.pi / 2, 13), np.linspace(0, np.pi / 2, 13))
    surface = np.sin(v) * np.cos(u), np.sin(v) * np.sin(u), np.cos(v)
    axis.plot_surface(*surface, color=theme.faint, alpha=0.16, linewidth=0, shade=False)
    axis.plot_wireframe(*surface, rstride=4, cstride=4, color=theme.faint, linewidth=0.4, alpha=0.7)
    for number, unit in enumerate(np.eye(3), 1):
        axis.plot(*np.array([np.zeros(3), 1.6 * unit]).T, color=theme.faint, linewidth=1)
        axis.text(
            *(1.71 * unit), f"x{'₁₂₃'[number - 1]}", color=theme.ink, fontsize=10, ha="center"
        )


def way(axis: Axes3D, theme: Theme, sparseness: float) -> None:
    """Draw x, the shifted x, and the projection."""
    found = hoyer.solve(X, sparseness, nonnegative=True)
    shifted = np.maximum(X - float(found.shift), 0)
    path = np.array([X, shifted, found.value])
    axis.plot(*path[:2].T, color=theme.orange, linewidth=2)
    axis.plot(*path[1:].T, color=theme.orange, linewidth=2, linestyle=(0, (2, 1)))
    axis.plot(*path[:1].T, "o", color=theme.orange, markersize=6)
    axis.plot(*path[2:].T, "o", color=theme.blue, markersize=8, markeredgecolor=theme.back)
    axis.text(*(path[0] + [0, 0.03, 0.06]), "x", color=theme.orange, fontsize=12)
    axis.text(*(path[2] + [0.02, -0.12, 0.06]), "p", color=theme.blue, fontsize=12)


draw("simplex", picture)
