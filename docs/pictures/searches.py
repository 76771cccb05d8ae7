"""Which search is tried, by the length of the vector; the full search stands behind all of them."""

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from theme import Theme, draw

LENGTHS = (
    ("rows of a batch", "up to 2048 floats", "side by side,\none per lane", "4 to 7, cached"),
    ("vectors", "128 to 16383", "a bracket from mean\nand deviation", "usually 2"),
    ("long vectors", "16384 and more", "a bracket from\na sample", "usually 1"),
    ("in parts", "chunks, machines", "exact histograms", "2 or 3 rounds"),
)  # fmt: skip


def picture(theme: Theme) -> Figure:
    """Draw a tree of three levels."""
    figure = Figure(figsize=(8.8, 4.2))
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set(xlim=(0, 8.8), ylim=(0, 4.2))
    axis.set_axis_off()

    def box(
        centre: tuple[float, float], size: tuple[float, float], words: str, colour: str
    ) -> None:
        corner = centre[0] - size[0] / 2, centre[1] - size[1] / 2
        look = {"facecolor": theme.fill, "edgecolor": colour, "linewidth": 1.6}
        axis.add_patch(
            FancyBboxPatch(corner, *size, boxstyle="round,pad=0.02,rounding_size=0.09", **look)
        )
        axis.text(*centre, words, ha="center", va="center", fontsize=9.5, linespacing=1.35)

    def arrow(start: tuple[float, float], end: tuple[float, float]) -> None:
        look = {"arrowstyle": "-|>", "color": theme.faint, "linewidth": 1.2}
        axis.annotate("", end, start, arrowprops=look)

    box((4.4, 3.88), (2.6, 0.42), "Where is the threshold α?", theme.ink)
    for number, (kind, length, search, reads) in enumerate(LENGTHS):
        x = 1.1 + 2.2 * number
        arrow((4.4, 3.65), (x, 3.32))
        box((x, 2.96), (1.95, 0.66), f"{kind}\n{length}", theme.faint)
        arrow((x, 2.61), (x, 2.33))
        box((x, 1.85), (1.95, 0.9), f"{search}\n", theme.blue)
        words = reads if "rounds" in reads else f"reads: {reads}"
        axis.text(x, 1.57, words, ha="center", va="center", fontsize=8.5, color=theme.blue)
        if number < len(LENGTHS) - 1:
            arrow((x, 1.38), (2.6 + 0.65 * (number + 0.6), 0.82))
    axis.text(1.25, 1.08, "in doubt", fontsize=8.5, ha="right", color=theme.faint)
    words = "full search: climbs from lower bound to lower bound\nends on every input"
    box((3.6, 0.5), (4.0, 0.62), words, theme.orange)
    return figure


draw("searches", picture)
