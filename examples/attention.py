"""
Attention: softmax and the simplex
==================================

Handwritten digits look up similar digits: each query compares itself with a memory of its own, 50
to 400 other digits, and averages their images and labels with weights that sum to 1. Softmax makes
none of the weights zero; the projection onto the simplex sets most of them to zero. All memories
are padded to the same length, and a mask says which places count.
"""

from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

import hoyer

mpl.use("Agg")
from matplotlib import pyplot as plt

OUT = Path("out")
QUERIES, MOST, FEWEST = 500, 400, 50
SHARPNESS = (5.0, 20.0, 80.0)
"""What similarities, cosines, are multiplied by: one over the temperature."""
SHOWN, NEIGHBOURS = 4, 7

Floats = npt.NDArray[np.float64]


class Lookup(NamedTuple):
    """Queries, their memories, and which places of these are filled."""

    images: Floats
    labels: npt.NDArray[np.int64]
    memory: npt.NDArray[np.int64]
    """For each query the digits it may look at; -1 beyond the last."""
    similarity: Floats
    """NaN beyond the last."""

    @property
    def filled(self) -> npt.NDArray[np.bool_]:
        """The mask: True for places that count."""
        return self.memory >= 0


def lookup(rng: np.random.Generator) -> Lookup:
    """Return the first digits as queries, with memories of random others."""
    bunch = load_digits()
    images = bunch.data / np.linalg.norm(bunch.data, axis=1, keepdims=True)
    memory = np.full((QUERIES, MOST), -1)
    for row in memory:
        size = rng.integers(FEWEST, MOST + 1)
        row[:size] = rng.choice(np.arange(QUERIES, len(images)), size, replace=False)
    similarity = np.einsum("qi,qki->qk", images[:QUERIES], images[memory])
    similarity[memory < 0] = np.nan
    return Lookup(images, bunch.target, memory, similarity)


def softmax(scores: Floats, where: npt.NDArray[np.bool_]) -> Floats:
    """Return weights that are all positive where the mask is True."""
    largest = np.max(scores, axis=1, keepdims=True, where=where, initial=-np.inf)
    powers = np.exp(np.where(where, scores - largest, -np.inf))
    weights: Floats = powers / powers.sum(axis=1, keepdims=True)
    return weights


def simplex(scores: Floats, where: npt.NDArray[np.bool_]) -> Floats:
    """Return the nearest weights that sum to 1."""
    return hoyer.project(scores, l1=1.0, nonnegative=True, where=where)


WAYS = {"softmax": softmax, "simplex": simplex}


def row(found: Lookup, weights: Floats) -> str:
    """Say how many weights are not zero, how large they are, and how often the label is right."""
    votes = np.einsum("qk,qkc->qc", weights, np.eye(10)[found.labels[found.memory]])
    right = (votes.argmax(axis=1) == found.labels[:QUERIES]).mean()
    used, largest = (weights > 0).sum(axis=1).mean(), weights.max(axis=1).mean()
    return f"{used:<12.1f} {largest:<12.2f} {100 * right:.1f}"


def picture(found: Lookup, sharpness: float, path: Path) -> None:
    """Show queries with the digits that got the largest weights, and what becomes of them."""
    figure, axes = plt.subplots(2 * SHOWN, NEIGHBOURS + 2, figsize=(8.6, 8.6), layout="constrained")
    for number in range(SHOWN):
        for line, (name, way) in enumerate(WAYS.items()):
            weights = way(sharpness * found.similarity, found.filled)[number]
            keys = found.images[found.memory[number]]
            cells = [("query", found.images[number]), (name, weights @ keys)]
            largest = np.argsort(-weights)[:NEIGHBOURS]
            cells += [(f"{weights[i]:.3f}", keys[i]) for i in largest if weights[i] > 0]
            for axis in axes[2 * number + line]:
                axis.set_axis_off()
            for axis, (title, image) in zip(axes[2 * number + line], cells, strict=False):
                axis.imshow(image.reshape(8, 8), cmap="Greys")
                axis.set_title(title, fontsize=8)
    figure.suptitle("Attention: the weighted mean, and the digits with the largest weights")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=130)
    print(f"\npicture: {path}")


def main() -> None:
    """Print the table and write the picture."""
    found = lookup(np.random.default_rng(0))
    sizes = found.filled.sum(axis=1)
    print(f"{QUERIES} digits look at {sizes.min()} to {sizes.max()} others, filled up to {MOST}\n")
    print("  sharpness  weights    not zero     largest      label right (%)")
    for sharpness in SHARPNESS:
        for name, way in WAYS.items():
            weights = way(sharpness * found.similarity, found.filled)
            print(f"  {sharpness:<10g} {name:<10} {row(found, weights)}")
    picture(found, SHARPNESS[1], OUT / "attention.png")


if __name__ == "__main__":
    main()
