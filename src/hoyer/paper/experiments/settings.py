"""What an experiment is asked to do: the settings of a run, its cells, and their random vectors."""

import json
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

import hoyer
from hoyer.paper.experiments.files import replacing
from hoyer.paper.problems import random_vector

__all__ = [
    "Cell",
    "Distribution",
    "Dtype",
    "Settings",
    "Steps",
    "draw",
    "exponent",
    "generator",
    "power",
    "scientific",
]

T = TypeVar("T")

# Kinds of random vectors without negative entries, which the paper's method asks for.
Distribution: TypeAlias = Literal["uniform", "halfnormal", "lognormal"]
Dtype: TypeAlias = Literal["float64", "float32"]
LOG2N_RANGE = (2, 30)

Steps: TypeAlias = tuple[tuple[int, int], ...]
"""Vectors in a cell: (12, 1000) means 1000 of them up to n = 2^12; the last step goes on."""

# Vectors are drawn in pieces, so that the generator's doubles never fill a second vector.
_PIECE = 2**13


class Cell(NamedTuple):
    """One point of an experiment: so many random vectors of one length, one target."""

    n: int
    sparseness: float
    vectors: int

    @property
    def cost(self) -> int:
        """What the cell costs, in entries; a call costs as much as some thousand of them."""
        return self.vectors * (self.n + 4096)


@dataclass(frozen=True, slots=True)
class Settings:
    """What all experiments of a run have in common.

    Parameters
    ----------
    full : bool
        The paper's own protocol instead of the quick one.
    vectors : int, optional
        Random vectors in every cell; if not given, what the protocol says.
    max_log2n : int, optional
        The largest vectors have 2**max_log2n entries; if not given, what the protocol says.
    distribution : {"uniform", "halfnormal", "lognormal"}
        How the entries are distributed; the paper does not say, uniform fits its numbers.
    dtype : {"float64", "float32"}
        The type of the vectors.
    seed : int
        Another seed gives other random vectors.

    Raises
    ------
    ValueError
        If one of them is out of range.

    Examples
    --------
    >>> Settings(full=True).label
    'full-uniform-float64-seed0'
    >>> Settings(distribution="normal")
    Traceback (most recent call last):
    ValueError: distribution='normal': choose one of 'uniform', 'halfnormal', 'lognormal'
    """

    full: bool = False
    vectors: int | None = None
    max_log2n: int | None = None
    distribution: Distribution = "uniform"
    dtype: Dtype = "float64"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, choices in (
            ("distribution", get_args(Distribution)),
            ("dtype", get_args(Dtype)),
        ):
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name}={value!r}: choose one of {str(choices)[1:-1]}")
        if self.vectors is not None and self.vectors < 1:
            raise ValueError(f"vectors={self.vectors}: must be at least 1")
        low, high = LOG2N_RANGE
        if self.max_log2n is not None and not low <= self.max_log2n <= high:
            raise ValueError(f"max_log2n={self.max_log2n}: must lie between {low} and {high}")
        if self.seed < 0:
            raise ValueError(f"seed={self.seed}: must not be negative")

    @property
    def label(self) -> str:
        """A name for the settings, fit for a directory."""
        parts = ["full" if self.full else "quick", self.distribution, self.dtype]
        parts.append(f"seed{self.seed}")
        if self.vectors is not None:
            parts.append(f"vectors{self.vectors}")
        if self.max_log2n is not None:
            parts.append(f"max{self.max_log2n}")
        return "-".join(parts)

    def count(self, n: int, *, quick: Steps, full: Steps) -> int:
        """Return how many vectors of length n a cell gets: as asked for, or by the protocol.

        Examples
        --------
        >>> [Settings().count(2**k, quick=((4, 20), (6, 3)), full=((6, 99),)) for k in (4, 5, 9)]
        [20, 3, 3]
        """
        if self.vectors is not None:
            return self.vectors
        steps = self._protocol(quick, full)
        return next((vectors for top, vectors in steps if n <= 2**top), steps[-1][1])

    def sizes(self, quick: int, full: int) -> list[int]:
        """Return the lengths 4, 8, 16, ... of vectors, up to what was asked for."""
        top = self._protocol(quick, full) if self.max_log2n is None else self.max_log2n
        return [2**k for k in range(2, top + 1)]

    def _protocol(self, quick: T, full: T) -> T:
        return full if self.full else quick

    def claim(self, directory: Path) -> Path:
        """Make a directory for the results of these settings, or check that it is one.

        Returns
        -------
        Path
            The file in it that tells the settings.

        Raises
        ------
        ValueError
            If the directory holds results of other settings, or tables without settings.
        OSError
            If it cannot be made.
        """
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "settings.json"
        mine = {**asdict(self), "version": hoyer.__version__}
        if path.exists():
            self._compare(directory, _read(path), mine)
            return path
        orphans = sorted(directory.glob("*.csv"))
        if orphans:
            raise ValueError(
                f"{directory} has {orphans[0].name} but no settings.json that tells its making: "
                "choose another directory, or delete the file"
            )
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(mine, indent=2) + "\n", encoding="utf-8")
        return path

    @staticmethod
    def _compare(directory: Path, theirs: dict[str, Any], mine: dict[str, Any]) -> None:
        names = sorted({*theirs, *mine})
        differing = [name for name in names if theirs.get(name) != mine.get(name)]
        if differing:
            pairs = (f"{name}={theirs.get(name)}, not {mine.get(name)}" for name in differing)
            raise ValueError(
                f"{directory} holds results made with {'; '.join(pairs)}: "
                "choose another directory, or delete that one"
            )


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{path} does not hold the settings of a run: delete its directory")
    return found


def exponent(n: int) -> int:
    """Return the k of n = 2^k."""
    return n.bit_length() - 1


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power(n: int) -> str:
    """Return how to write n = 2^k.

    Examples
    --------
    >>> power(1024)
    '2¹⁰'
    """
    return "2" + str(exponent(n)).translate(_SUPERSCRIPTS)


def scientific(value: float, digits: int = 1) -> str:
    """Return how to write a small number, with so many digits after the point.

    Examples
    --------
    >>> scientific(1.83e-15), scientific(-4e-15, 0), scientific(float("inf"))
    ('1.8·10⁻¹⁵', '-4·10⁻¹⁵', '∞')
    """
    if not np.isfinite(value):
        return f"{value:g}".replace("inf", "∞")
    if value == 0:
        return "0"
    mantissa, _, exponent_of_ten = f"{value:.{digits}e}".partition("e")
    return f"{mantissa}·10{str(int(exponent_of_ten)).translate(_SUPERSCRIPTS)}"


def generator(settings: Settings, experiment: str, cell: Cell, index: int) -> np.random.Generator:
    """Return the random numbers of one vector: they depend on nothing but the arguments."""
    place = [zlib.crc32(experiment.encode()), cell.n, round(1e6 * cell.sparseness), index]
    return np.random.default_rng([settings.seed, *place])


def draw(settings: Settings, n: int, rng: np.random.Generator) -> NDArray[Any]:
    """Draw a vector; nothing else of its size is ever held.

    Examples
    --------
    >>> cell = Cell(4, 0.9, 1)
    >>> draw(Settings(dtype="float32"), 4, generator(Settings(), "solvers", cell, 0)).dtype
    dtype('float32')
    """
    x = np.empty(n, settings.dtype)
    for start in range(0, n, _PIECE):
        piece = x[start : start + _PIECE]
        piece[...] = random_vector(settings.distribution, piece.size, rng, settings.dtype)
    return x
