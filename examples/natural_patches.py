"""
Atoms of natural images
=======================

Dictionaries for patches of photographs, with codes of exactly the chosen sparseness, learned from
three photographs that come with scikit-image and tested on two others. This takes about a minute;
``make pictures`` drew the picture below.

.. image:: /pictures/natural_patches.png
   :alt: Atoms at three choices of sparseness: edges and bars of both signs.
"""

# sphinx_gallery_thumbnail_path = "pictures/natural_patches.png"

import time
from typing import Any

import numpy as np
from pictures import OUT, Block, draw
from shipped import PATCH, patches

import hoyer
from hoyer.decomposition import SparseDictionaryLearning

KINDS: dict[str, dict[str, Any]] = {
    "codes 0.7": {"codes_sparseness": 0.7},
    "codes 0.9": {"codes_sparseness": 0.9},
    "codes 0.9, atoms 0.6": {"codes_sparseness": 0.9, "components_sparseness": 0.6},
}
ATOMS = 100


def main() -> None:
    """Print a table and write the picture."""
    train = patches(("camera", "chelsea", "coffee"), 20_000, seed=0)
    test = patches(("astronaut", "rocket"), 5_000, seed=1)
    print(f"{len(train)} patches to learn {ATOMS} atoms from, {len(test)} to judge them by\n")
    print("  sparseness              atoms per   signal to noise on   learned")
    print("                          patch       new images (dB)      in (s)")
    blocks = []
    for name, options in KINDS.items():
        model = SparseDictionaryLearning(ATOMS, random_state=0, max_iter=10, tol=0, **options)
        start = time.perf_counter()
        model.fit(train)
        seconds = time.perf_counter() - start
        codes = model.transform(test)
        assert np.allclose(hoyer.sparseness(codes), options["codes_sparseness"])
        error = test - model.inverse_transform(codes)
        ratio = 10 * np.log10(np.sum(test**2) / np.sum(error**2))
        print(f"  {name:<23} {(codes != 0).sum(axis=1).mean():<11.1f} {ratio:<20.1f} {seconds:.1f}")
        order = np.argsort(-np.sum(codes**2, axis=0))
        blocks.append(Block(name, model.components_[order]))
    draw(
        blocks,
        PATCH,
        OUT / "natural_patches.png",
        title="Atoms of natural images, the most used first (red and blue: the two signs)",
        columns=10,
        signed=True,
    )


if __name__ == "__main__":
    main()
