"""Drawing for the examples: blocks of small images side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from shipped import Vectors

mpl.use("Agg")
from matplotlib import pyplot as plt

OUT = Path("out")


class Block(NamedTuple):
    """Images that belong together, one per row of `vectors`."""

    title: str
    vectors: Vectors


def mosaic(vectors: Vectors, shape: tuple[int, int], columns: int) -> Vectors:
    """Return one image of all images, each in units of its largest entry, with lines between."""
    height, width = shape
    rows = -(-len(vectors) // columns)
    page = np.full((rows * (height + 1) + 1, columns * (width + 1) + 1), np.nan)
    for number, vector in enumerate(vectors):
        top = (number // columns) * (height + 1) + 1
        left = (number % columns) * (width + 1) + 1
        scale = max(float(abs(vector).max()), np.finfo(float).tiny)
        page[top : top + height, left : left + width] = vector.reshape(shape) / scale
    return page


def draw(
    blocks: Sequence[Block],
    shape: tuple[int, int],
    path: Path,
    *,
    title: str,
    columns: int,
    signed: bool = False,
) -> None:
    """Write a picture with the blocks side by side: black is large, or red and blue the signs."""
    height, width = shape
    rows = -(-max(len(block.vectors) for block in blocks) // columns)
    size = 3.2 * len(blocks), 3.2 * (rows * height) / (columns * width) + 0.9
    figure, axes = plt.subplots(1, len(blocks), figsize=size, layout="constrained", squeeze=False)
    colours = mpl.colormaps["RdBu_r" if signed else "Greys"].with_extremes(bad="0.7")
    for axis, block in zip(axes[0], blocks, strict=True):
        page = mosaic(block.vectors, shape, columns)
        axis.imshow(page, cmap=colours, vmin=-1 if signed else 0, vmax=1, interpolation="nearest")
        axis.set_title(block.title, fontsize=10)
        axis.set_axis_off()
    figure.suptitle(title, fontsize=11)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=130, bbox_inches="tight")
    print(f"\npicture: {path}")
