"""
Digits at a chosen sparseness
=============================

The 1797 handwritten digits that come with scikit-learn, projected to several sparseness values.
Each vector is a digit minus the average image: 64 real numbers, of both signs. Run it with
``make demo``.
"""

import time
from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

import hoyer
from hoyer.paper.experiments.precision import closed_form, error_of, holds

mpl.use("Agg")
from matplotlib import pyplot as plt

SPARSENESS = (0.4, 0.6, 0.75, 0.9)
OUT = Path("out")
NOTES = """
Nonzero entries, reads and time are means per vector. Vectors as short as these
are read several times, in the caches; from 128 entries on usually twice, from
16384 on once. The error is the largest of all vectors, in eps (2e-16) of the
vector's largest entry, checked in long double.
"""

Vectors = npt.NDArray[np.float64]


def digits() -> tuple[Vectors, npt.NDArray[np.int64]]:
    """Return the vectors and which digit each one shows."""
    bunch = load_digits()
    return bunch.data - bunch.data.mean(axis=0), bunch.target


def largest_error(x: Vectors, sparseness: float) -> float:
    """Return the largest error over the vectors, in eps of a vector's largest entry.

    Results are checked in long double. Both norms are given as numbers here: then both sides have
    the very same target, and what one of them rounds in it is not taken for an error of the other.
    """
    l1, l2 = hoyer.target_norms(x.shape[1], sparseness, l2=np.linalg.norm(x, axis=1))
    results = hoyer.project(x, l1=l1, l2=l2)
    worst = 0.0
    for vector, result, norm1, norm2 in zip(abs(x), abs(results), l1, l2, strict=True):
        norms = float(norm1), float(norm2)
        form = closed_form(vector, result, *norms)
        if form is None or not holds(form, vector, *norms):
            return float("inf")
        worst = max(worst, error_of(form, vector, result))
    return worst / float(np.finfo(float).eps)


def table(x: Vectors) -> list[Vectors]:
    """Project all vectors to each sparseness, print what happened and return the results."""
    print(f"{len(x)} real vectors of {x.shape[1]} entries, each keeping its own norm\n")
    print("  target   sparseness   sparseness   nonzero    reads of     time     largest")
    print("           before       after        entries    the data     (us)     error (eps)")
    before = hoyer.sparseness(x).mean()
    results = []
    for target in SPARSENESS:
        start = time.perf_counter()
        hoyer.project(x, target, l2="keep")
        microseconds = (time.perf_counter() - start) * 1e6 / len(x)
        found = hoyer.solve(x, target, l2="keep")
        after = hoyer.sparseness(found.value)
        print(
            f"  {target:<8} {before:<12.3f} {after.mean():<12.6f} "
            f"{found.support_size.mean():<10.1f} {found.evaluations.mean():<12.1f} "
            f"{microseconds:<8.2f} {largest_error(x, target):.1f}"
        )
        results.append(found.value)
    print(NOTES)
    return results


def picture(x: Vectors, results: list[Vectors], labels: npt.NDArray[np.int64], path: Path) -> None:
    """Show one example of every digit, and what is left of it at each sparseness."""
    chosen = [int(np.argmax(labels == digit)) for digit in range(10)]
    rows = [("the digit", load_digits().data), ("minus the average", x)]
    rows += zip((f"sparseness {s}" for s in SPARSENESS[1:]), results[1:], strict=True)
    figure, axes = plt.subplots(len(rows), 10, figsize=(10, 5.6), layout="constrained")
    for number, (line, (title, vectors)) in enumerate(zip(axes, rows, strict=True)):
        for axis, index in zip(line, chosen, strict=True):
            image = vectors[index].reshape(8, 8)
            limit = abs(image).max()
            ink = {"cmap": "Greys"} if number == 0 else {"cmap": "RdBu_r", "vmin": -limit}
            axis.imshow(image, vmax=limit, **ink)
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_color("0.7")
            if number > 0:
                axis.set_xlabel(f"{np.count_nonzero(image)} of 64", fontsize=7, labelpad=2)
        line[0].set_ylabel(title, rotation=0, ha="right", va="center", fontsize=10)
    figure.suptitle(
        "What makes a digit differ from the average digit, at a chosen sparseness\n"
        "red: more ink than average, blue: less, no colour: zero; below each: pixels not zero",
        fontsize=11,
    )
    figure.savefig(path, dpi=130)


def main() -> None:
    """Run the demo."""
    x, labels = digits()
    results = table(x)
    OUT.mkdir(exist_ok=True)
    path = OUT / "demo.png"
    picture(x, results, labels, path)
    print(f"picture: {path}")


if __name__ == "__main__":
    main()
