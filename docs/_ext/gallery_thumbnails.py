"""Thumbnails of the gallery that show something: wide pictures are cut, not shrunk to a strip."""

from pathlib import Path
from typing import NamedTuple

from PIL import Image
from sphinx.application import Sphinx

WIDTH, HEIGHT, GAP = 480, 320, 10


class Part(NamedTuple):
    """A part of a picture: where its sides are, as shares of width and height."""

    left: float
    top: float
    right: float
    bottom: float


class Cut(NamedTuple):
    """The parts of a picture that stand side by side in its thumbnail."""

    picture: str
    parts: tuple[Part, ...]


CUTS = {
    "faces": Cut(
        "pictures/faces.png",
        (Part(0.007, 0.148, 0.152, 0.646), Part(0.750, 0.148, 0.895, 0.646)),
    ),
    "digits": Cut(
        "gallery/images/sphx_glr_digits_001.png",
        (Part(0.252, 0.148, 0.400, 0.760), Part(0.502, 0.148, 0.650, 0.760)),
    ),
    "natural_patches": Cut(
        "pictures/natural_patches.png",
        (Part(0.340, 0.173, 0.501, 0.735), Part(0.668, 0.173, 0.829, 0.735)),
    ),
    "jax_network": Cut(
        "pictures/jax_network.png",
        (Part(0.009, 0.173, 0.172, 0.708), Part(0.340, 0.173, 0.503, 0.708)),
    ),
    "sparse_mlp": Cut("pictures/sparse_mlp.png", (Part(0.0, 0.1, 0.545, 1.0),)),
}


def thumbnail(picture: Path, parts: tuple[Part, ...]) -> Image.Image:
    """Return the parts of a picture side by side, as large as a thumbnail can show them."""
    with Image.open(picture) as opened:
        whole = opened.convert("RGB")
    pieces = [
        whole.crop(
            (
                round(part.left * whole.width),
                round(part.top * whole.height),
                round(part.right * whole.width),
                round(part.bottom * whole.height),
            )
        )
        for part in parts
    ]
    gaps = GAP * (len(pieces) - 1)
    scale = min(
        HEIGHT / max(piece.height for piece in pieces),
        (WIDTH - gaps) / sum(piece.width for piece in pieces),
    )
    pieces = [
        piece.resize(
            (round(scale * piece.width), round(scale * piece.height)), Image.Resampling.LANCZOS
        )
        for piece in pieces
    ]
    page = Image.new("RGB", (WIDTH, HEIGHT), "white")
    left = (WIDTH - gaps - sum(piece.width for piece in pieces)) // 2
    for piece in pieces:
        page.paste(piece, (left, (HEIGHT - piece.height) // 2))
        left += piece.width + GAP
    return page


def draw(app: Sphinx) -> None:
    """Draw the thumbnails over those that the gallery has made."""
    docs = Path(app.srcdir)
    for name, cut in CUTS.items():
        if not (docs / cut.picture).exists():  # no example was run
            continue
        path = docs / "gallery" / "images" / "thumb" / f"sphx_glr_{name}_thumb.png"
        thumbnail(docs / cut.picture, cut.parts).save(path)


def setup(app: Sphinx) -> dict[str, bool]:
    """Join the build, after the gallery."""
    app.connect("builder-inited", draw, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
