"""How a kernel is cut for a length and a type: a table, from measurements on an H200.

Measured: 64 to 32768 in powers of two for float32; 512, 1024, 4096, 16384 (and 32768 for bfloat16)
otherwise. Lengths in between, and below 64, follow their neighbours. For products see `BACKWARD`.
"""

from typing import NamedTuple, TypeVar


class Cut(NamedTuple):
    """A tile of R vectors in J pieces of I entries (see `device`), and the warps that hold it."""

    pieces: int
    rows: int
    width: int
    warps: int
    registers: int | None = None
    """The most registers per thread, where fewer let more programs fit side by side."""

    @property
    def entries(self) -> int:
        """How many entries a thread holds."""
        return self.pieces * self.rows * self.width // (32 * self.warps)


# Per size of an entry in bytes: the cut for vectors up to each length.
FORWARD: dict[int, list[tuple[int, Cut]]] = {
    4: [
        (16, Cut(2, 16, 8, 1)),
        (32, Cut(4, 16, 8, 1)),
        (64, Cut(8, 16, 8, 1)),
        (128, Cut(8, 8, 16, 1)),
        (256, Cut(8, 4, 32, 1)),
        (512, Cut(8, 2, 64, 1)),
        (1024, Cut(8, 1, 128, 1)),
        (2048, Cut(16, 1, 128, 1)),
        (4096, Cut(16, 1, 256, 2)),
        (8192, Cut(32, 1, 256, 2, 168)),
        (16384, Cut(32, 1, 512, 4, 168)),
        (32768, Cut(32, 1, 1024, 8)),
    ],
    8: [
        (16, Cut(2, 8, 8, 1)),
        (32, Cut(4, 8, 8, 1)),
        (64, Cut(4, 4, 16, 1)),
        (128, Cut(8, 4, 16, 1)),
        (256, Cut(8, 2, 32, 1)),
        (512, Cut(16, 2, 32, 1)),
        (1024, Cut(16, 1, 64, 1)),
        (2048, Cut(16, 1, 128, 2)),
        (4096, Cut(16, 1, 256, 4)),
        (8192, Cut(16, 1, 512, 8)),
        (16384, Cut(16, 1, 1024, 16)),
    ],
    2: [
        (16, Cut(1, 16, 16, 1)),
        (32, Cut(2, 16, 16, 1)),
        (64, Cut(4, 16, 16, 1)),
        (128, Cut(4, 8, 32, 1)),
        (256, Cut(4, 4, 64, 1)),
        (512, Cut(8, 4, 64, 1)),
        (1024, Cut(8, 2, 128, 1)),
        (2048, Cut(8, 1, 256, 1)),
        (4096, Cut(8, 1, 512, 2)),
        (8192, Cut(8, 1, 1024, 4)),
        (16384, Cut(8, 1, 2048, 8)),
        (32768, Cut(8, 1, 4096, 16)),
    ],
}


MASKED: dict[int, int] = {32: 96, 64: 168}
"""The most registers per thread for masked rows of float32, by the entries that a thread holds.

Left to itself the compiler takes all there are, for branches that are rarely taken. Measured: 1024
(153 instead of 173 microseconds for a simplex, next to 131 without a mask) and 4096 (187 instead of
231).
"""


class ProductCut(NamedTuple):
    """How products are cut (see `gradient`): what a program holds, and what becomes of the rest."""

    pieces: int
    """Pieces of a vector in registers."""
    rows: int
    width: int
    """Entries of a piece; its threads have 16 bytes each."""
    warps: int
    programs: int = 0
    """How many are to fit on a multiprocessor; 0 leaves that to the compiler.

    Left to itself it may load the last pieces of long rows late, when the first have been added up,
    to save registers that nobody else needs.
    """
    group: int = 0
    """Pieces of y that are read at a time, and again later; 0 if y stays in registers, too."""
    skip: bool = True
    """Whether y is left out where the result is zero: less to read, but one wait after another."""
    pairs: bool = True
    """Whether half types are read in pairs: fewer instructions, but each entry is rounded alone."""

    @property
    def held(self) -> int:
        """Entries of a vector in registers."""
        return self.pieces * self.width


BACKWARD: dict[int, list[tuple[int, ProductCut]]] = {
    4: [
        (16, ProductCut(2, 16, 8, 1, skip=False)),
        (32, ProductCut(4, 16, 8, 1, skip=False)),
        (64, ProductCut(4, 8, 16, 1, skip=False)),
        (128, ProductCut(4, 4, 32, 1, skip=False)),
        (256, ProductCut(4, 2, 64, 1)),
        (512, ProductCut(4, 1, 128, 1)),
        (1024, ProductCut(8, 1, 128, 1)),
        (2048, ProductCut(8, 1, 256, 2, 8)),
        (4096, ProductCut(8, 1, 512, 4, 4)),
        (8192, ProductCut(8, 1, 1024, 8, 2, skip=False)),
        (16384, ProductCut(8, 1, 2048, 16, 1, skip=False)),
        (32768, ProductCut(16, 1, 2048, 16, 1, group=4)),
        (1 << 18, ProductCut(0, 1, 4096, 32, 1, group=4)),
    ],
    8: [
        (16, ProductCut(2, 8, 8, 1, skip=False)),
        (32, ProductCut(4, 8, 8, 1, skip=False)),
        (64, ProductCut(4, 4, 16, 1, skip=False)),
        (128, ProductCut(8, 4, 16, 1, skip=False)),
        (256, ProductCut(8, 2, 32, 1, skip=False)),
        (512, ProductCut(8, 1, 64, 1, skip=False)),
        (1024, ProductCut(8, 1, 128, 2, skip=False)),
        (2048, ProductCut(8, 1, 256, 4, skip=False)),
        (4096, ProductCut(8, 1, 512, 8, skip=False)),
        (8192, ProductCut(8, 1, 1024, 16, 1, group=2)),
        (16384, ProductCut(16, 1, 1024, 16, 1, group=4)),
        (1 << 17, ProductCut(0, 1, 2048, 32, 1, group=4)),
    ],
    2: [
        (16, ProductCut(1, 16, 16, 1, skip=False)),
        (32, ProductCut(2, 16, 16, 1, skip=False)),
        (64, ProductCut(2, 8, 32, 1, skip=False)),
        (128, ProductCut(2, 4, 64, 1, skip=False)),
        (256, ProductCut(2, 2, 128, 1)),
        (512, ProductCut(2, 1, 256, 1)),
        (1024, ProductCut(4, 1, 256, 1)),
        (2048, ProductCut(4, 1, 512, 2, 8)),
        (4096, ProductCut(4, 1, 1024, 4, 4, skip=False, pairs=False)),
        (8192, ProductCut(4, 1, 2048, 8, 2, pairs=False)),
        (16384, ProductCut(4, 1, 4096, 16, 1, skip=False, pairs=False)),
        (32768, ProductCut(8, 1, 4096, 16, 1, group=2, skip=False, pairs=False)),
        (1 << 19, ProductCut(0, 1, 8192, 32, 1, group=2)),
    ],
}
"""How rows are cut for products, per size of an entry in bytes.

Measured, at sparseness 0.9 and 0.5: 64, 256, 1024, 4096, 16384, 32768 and 65536 for float32; 1024,
8192 and 16384 for float64; 512, 1024, 4096 and 32768 for bfloat16. The rest follows its neighbours,
rows of other types beyond 128 KiB those of float32.
"""

SHARED: dict[int, ProductCut] = {
    4: ProductCut(4, 1, 1024, 8),
    8: ProductCut(4, 1, 512, 8),
    2: ProductCut(2, 1, 2048, 8),
}
"""How programs that share a vector take their parts of it; measured for float32, 2^20 entries."""


class LongCut(NamedTuple):
    """How one program, or several, read a vector in blocks."""

    pieces: int
    """16-byte loads of a thread per block."""
    warps: int
    programs: int
    """How many programs fit on a multiprocessor."""


# As above. Measured: 65536, 2^20, 2^26 and 2^30 for float32; the others follow it.
LONG: dict[int, list[tuple[int, LongCut]]] = {
    4: [(1 << 18, LongCut(16, 8, 1)), (1 << 28, LongCut(8, 8, 2)), (1 << 62, LongCut(8, 16, 1))],
    8: [(1 << 62, LongCut(16, 8, 1))],
    2: [(1 << 62, LongCut(8, 8, 1))],
}

CACHED = 54 << 20
"""Bytes of vectors that are read at the same time and stay in the cache."""

HUGE = 1 << 22
"""Entries from which on one reading has to do."""

SAMPLE = 1 << 14
"""Entries of a sample, at least."""


class CarefulCut(NamedTuple):
    """How the careful kernel reads a vector: four entries a thread, or registers run out."""

    block: int
    warps: int
    programs: int
    """How many programs fit on a multiprocessor."""


def careful_cut(n: int) -> CarefulCut:
    """Return the cut for vectors of length n; a long one that was left alone holds up everybody."""
    return CarefulCut(2048, 16, 1) if 4096 < n <= 65536 else CarefulCut(512, 4, 4)


_Cut = TypeVar("_Cut", Cut, ProductCut, LongCut)


def cut_for(table: dict[int, list[tuple[int, _Cut]]], itemsize: int, n: int) -> _Cut | None:
    """Return the cut for vectors of length n; None where one program is not enough."""
    for longest, cut in table[itemsize]:
        if n <= longest:
            return cut
    return None
