"""One palette for all pictures of the site, light and dark; each picture is drawn in both.

The colours are those of Okabe and Ito, which people with any kind of colour vision can tell apart.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Theme:
    """Colours of a picture."""

    name: str
    ink: str
    faint: str
    fill: str
    back: str
    blue: str
    orange: str
    green: str


LIGHT = Theme("light", "#222832", "#8a919c", "#e8edf3", "#ffffff", "#0072B2", "#D55E00", "#009E73")
DARK = Theme("dark", "#ced6dd", "#7d8794", "#242b35", "#14181e", "#56B4E9", "#E69F00", "#3fc79a")


@contextmanager
def drawing(theme: Theme) -> Iterator[None]:
    """Set Matplotlib up for a theme."""
    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": "hoyer",
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 10,
        "mathtext.fontset": "dejavusans",
        "text.color": theme.ink,
        "axes.edgecolor": theme.faint,
        "axes.labelcolor": theme.ink,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.facecolor": "none",
        "figure.facecolor": "none",
        "savefig.facecolor": "none",
        "xtick.color": theme.ink,
        "ytick.color": theme.ink,
        "legend.frameon": False,
    }
    with mpl.rc_context(settings):
        yield


def draw(name: str, picture: Callable[[Theme], Figure]) -> None:
    """Write a picture in both themes, as SVG beside this file."""
    for theme in (LIGHT, DARK):
        with drawing(theme):
            figure = picture(theme)
            path = HERE / f"{name}-{theme.name}.svg"
            figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
            plt.close(figure)
    print(f"{name}: {path.stat().st_size // 1024} kB each")
