"""
Parts of faces
==============

The 400 portraits of the ORL database, at half size, are taken apart into 25 components of a chosen
sparseness, as in Hoyer (2004). The sparser the components, the more they look like parts: brows,
noses, chins. The table also has Hoyer's own algorithm, which ends with a larger error.
"""

import time

from pictures import OUT, Block, draw
from shipped import FACE, Vectors, faces

import hoyer
from hoyer.decomposition import SparseNMF

SPARSENESS = (None, 0.5, 0.6, 0.75)
COMPONENTS, ITERATIONS = 25, 400


def fitted(X: Vectors, sparseness: float | None, solver: str) -> tuple[SparseNMF, float]:
    """Return the fitted estimator and the seconds it took."""
    model = SparseNMF(
        COMPONENTS,
        components_sparseness=sparseness,
        solver=solver,
        random_state=0,
        max_iter=ITERATIONS,
        tol=0,
    )
    start = time.perf_counter()
    model.fit(X)
    return model, time.perf_counter() - start


def main() -> None:
    """Print a table and write the picture."""
    X = faces()
    print(f"{X.shape[0]} faces of {X.shape[1]} pixels, {COMPONENTS} components\n")
    print("  asked   sparseness   pixels used   error after "
          f"{ITERATIONS} iterations (%)    seconds")  # fmt: skip
    print("          found        (%)           bcd      nmfsc                    bcd   nmfsc")
    blocks = []
    for target in SPARSENESS:
        (model, seconds), (reference, slow) = (fitted(X, target, s) for s in ("bcd", "nmfsc"))
        components, norm = model.components_, (X**2).sum() ** 0.5
        errors = [100 * m.reconstruction_err_ / norm for m in (model, reference)]
        found = hoyer.sparseness(components)
        print(
            f"  {target or 'none':<7} {found.min():.2f}-{found.max():.2f}    "
            f"{100 * (components > 0).mean():<13.0f} {errors[0]:<8.2f} {errors[1]:<24.2f} "
            f"{seconds:<5.1f} {slow:.1f}"
        )
        name = f"sparseness {target}" if target else f"free (sparseness {found.mean():.2f})"
        blocks.append(Block(name, components))
    draw(
        blocks,
        FACE,
        OUT / "faces.png",
        title="25 components of 400 faces: the sparser, the more they look like parts",
        columns=5,
    )


if __name__ == "__main__":
    main()
