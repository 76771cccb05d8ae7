"""examples/attention.py: weights that sum to 1, none of them where nothing is."""

import runpy
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")

EXAMPLE = Path(__file__).parents[1] / "examples" / "attention.py"


def test_weights_are_shares_of_the_places_that_are_filled(rng):
    example = runpy.run_path(str(EXAMPLE))
    found = example["lookup"](rng)
    assert np.isnan(found.similarity[~found.filled]).all()
    used = []
    for way in example["WAYS"].values():
        weights = way(20.0 * found.similarity, found.filled)
        np.testing.assert_allclose(weights.sum(axis=1), 1)
        assert not weights[~found.filled].any()
        assert (weights >= 0).all()
        used.append((weights > 0).sum(axis=1).mean())
        assert float(example["row"](found, weights).split()[0]) == pytest.approx(used[-1], abs=0.06)
    softmax, simplex = used
    assert softmax == found.filled.sum(axis=1).mean()
    assert simplex < 10


def test_the_picture(tmp_path, rng):
    example = runpy.run_path(str(EXAMPLE))
    example["picture"](example["lookup"](rng), 20.0, tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
