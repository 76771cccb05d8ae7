"""Arrays in many pieces, larger than memory: Zarr stores, and folders of .npy parts, by Dask."""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

try:
    import dask
    import dask.array as da
    from dask.callbacks import Callback
    from dask.layers import ArrayBlockwiseDep
except ImportError:
    raise ValueError(
        "Zarr stores and folders of .npy files need Dask: pip install 'hoyer[dask]'"
    ) from None

import numpy as np

from ..api import project, sparseness
from ..layout import layout_of
from ..options import Axis
from ..system import spare_memory
from .blocks import Vectors, as_vectors, blocks, describe
from .files import broadcast_mask, open_mask
from .folders import refuse_folder, replacing_folder, writing
from .names import STANDARD, printable, source_name, speaking_of, target_name
from .npy import create_npy, open_npy
from .progress import Advance, progress_bar

CHUNK_BYTES = 1 << 26
"""Parts larger than this are read some rows at a time."""
PIECE_BYTES = 1 << 26
"""So much of an array is brought together at a time to measure it, or more if there is memory."""


def is_store(path: Path) -> bool:
    """Whether a folder is a Zarr store."""
    return any((path / name).exists() for name in ("zarr.json", ".zarray", ".zgroup"))


def project_folder(
    source: Path,
    target: Path,
    axis: Axis,
    options: dict[str, Any],
    *,
    where: Path | None = None,
    scheduler: str | None = None,
    force: bool = False,
) -> list[str]:
    """Project the array in a folder into another folder of the same kind, and say what was done.

    `where` is the file of the mask. The result appears when it is complete, or not at all.
    """
    name = source_name(source)
    read = [source] if where is None else [source, where]
    # Checked before a long computation; `replacing_folder` checks again.
    refuse_folder(target, read, force=force)
    run = new_run()
    given = opened(source, run)
    mask = None if where is None else opened_mask(where, name, given.array, run)
    with speaking_of(name):
        result: Any = project(given.array, axis=axis, where=mask, **options)
    with (
        _cluster(scheduler) as client,
        replacing_folder(target, read, force=force) as folder,
        progress_bar(name, result.size, show=True) as advance,
    ):
        with writing(target):
            written = given.created(folder, result)
        with speaking_of(name):
            _store(result, written, run, client, advance)
    length = layout_of(result.shape, axis).length
    done = describe(result.size // max(length, 1), length, str(result.dtype))
    return [f"{target_name(target)}: {done}"]


def pieces_of(array: "Readable", axis: Axis) -> Iterator[Vectors]:
    """Read whole vectors, as many at a time as there is memory for, chunks as rarely as may be."""
    layout = layout_of(array.shape, axis)
    inner = {i % array.ndim for i in layout.axes}
    outer = [i for i in range(array.ndim) if i not in inner]
    limit = max(PIECE_BYTES, spare_memory() // 16) // array.dtype.itemsize
    steps = tuple(array.chunks[i] for i in outer)
    for cut in blocks(layout.batch, layout.length, limit, steps):
        region = [slice(None)] * array.ndim
        for i, own in zip(outer, cut, strict=False):
            region[i] = own
        yield as_vectors(array[tuple(region)], axis)


def sparseness_of(vectors: Vectors) -> Any:
    """Return Hoyer's sparseness of all vectors, which need not fit the memory."""
    return sparseness(vectors.array, axis=vectors.axes).compute(scheduler="threads")


# ---- what is in a folder ----


def new_run() -> str:
    """Return what the names of tasks begin with.

    They mean the same to all runs on a scheduler: without it, one run would get what another one
    has read, or written.
    """
    return secrets.token_hex(8)


def opened(path: Path, run: str) -> "Store | Parts":
    """Open a Zarr store, or a folder of .npy files."""
    return Store.opened(path, run) if is_store(path) else Parts.opened(path, run)


@dataclass(frozen=True)
class Readable:
    """What reads regions of an array on disk; damage is a ValueError, whoever finds it."""

    source: Any
    shape: tuple[int, ...]
    dtype: Any
    chunks: tuple[int, ...]
    """How large the pieces are in which it lies on disk, mostly."""

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    def __getitem__(self, region: tuple[slice, ...]) -> Any:
        try:
            return np.asarray(self.source[region])
        except Exception as error:  # of whatever kind codecs have
            raise ValueError(f"it cannot be read ({error})") from error


class Store(NamedTuple):
    """A Zarr array on disk."""

    array: da.Array
    read: Readable

    @staticmethod
    def opened(path: Path, run: str) -> "Store":
        """Open it; nothing is read."""
        try:
            import zarr  # noqa: PLC0415 - needed for Zarr arrays alone

            found = zarr.open_array(str(path.resolve()), mode="r")
            read = Readable(found, found.shape, np.dtype(found.dtype), found.chunks)
            options: dict[str, Any] = {"name": f"hoyer-read-{run}", "asarray": False, "lock": False}
            meta: Any = np.empty((0,) * read.ndim, read.dtype)
            array = da.from_array(read, chunks=found.chunks, meta=meta, **options)
            return Store(array, read)
        except ImportError:
            raise ValueError(f"{source_name(path)} needs zarr: pip install zarr") from None
        except Exception as error:  # of whatever kind zarr has: it is no array, or damaged
            raise ValueError(
                f"{source_name(path)} cannot be read as a Zarr array ({error}); of a group name "
                "one array, as store.zarr/x"
            ) from None

    def created(self, path: Path, result: da.Array) -> Any:
        """Create an array for the result, with its chunks and what else is said about the source.

        Numbers of the same type are compressed in the same way, if nothing is lost by it. Filters
        are chosen for the numbers that pass them, and the result's are others.
        """
        import zarr  # noqa: PLC0415 - it was needed to read, too

        source = self.read.source
        alike = result.dtype == source.dtype.newbyteorder("=")
        exact = not any("zfp" in str(one).lower() for one in source.compressors)
        return zarr.create_array(
            store=str(path),
            shape=result.shape,
            chunks=tuple(max(1, *sizes) for sizes in result.chunks),
            dtype=result.dtype,
            zarr_format=source.metadata.zarr_format,
            attributes=dict(source.metadata.attributes),
            dimension_names=getattr(source.metadata, "dimension_names", None),
            **({"compressors": source.compressors} if alike and exact else {}),
        )


class Parts(NamedTuple):
    """Files name-0.npy, name-1.npy ..., one after the other along the first axis."""

    array: da.Array
    read: Readable
    names: tuple[str, ...]
    ends: tuple[int, ...]
    """Where along the first axis files begin and end."""

    @staticmethod
    def opened(path: Path, run: str) -> "Parts":
        """Look at the headers of all files; no numbers are read."""
        files = sorted(path.glob("*.npy"), key=_by_number)
        if not files:
            raise ValueError(f"{source_name(path)} is no Zarr store, and has no .npy files in it")
        if (path / "info").exists():
            raise ValueError(
                f"{source_name(path)} is a stack of Dask's (it has a file info), whose axis is not "
                "read here: use dask.array.from_npy_stack, or remove info if parts lie one after "
                "the other along the first axis"
            )
        heads = [_header(file) for file in files]
        first = heads[0]
        for file, head in zip(files, heads, strict=True):
            if head.shape[1:] != first.shape[1:] or head.dtype != first.dtype or not head.ndim:
                raise ValueError(
                    f"{source_name(file)} has shape {head.shape} and type {head.dtype}, "
                    f"{source_name(files[0])} {first.shape} and {first.dtype}: parts lie one after "
                    "the other along the first axis, and are alike otherwise"
                )
        pieces = [
            Piece(str(file.resolve()), (rows, ...))
            for file, head in zip(files, heads, strict=True)
            for rows in _rows(head)
        ]
        sizes = tuple(piece.region[0].stop - piece.region[0].start for piece in pieces)
        chunks = (sizes, *((size,) for size in first.shape[1:]))
        array = _read_lazily(f"hoyer-read-{run}", chunks, pieces, first.dtype)
        ends = np.cumsum([0, *(len(head) for head in heads)]).tolist()
        shape = (ends[-1], *first.shape[1:])
        rows = Rows(tuple(map(str, files)), tuple(ends))
        read = Readable(rows, shape, first.dtype, (1, *first.shape[1:]))
        return Parts(array, read, tuple(file.name for file in files), tuple(ends))

    def created(self, path: Path, result: da.Array) -> "Target":
        """Create files for the result, named as the parts are."""
        for name, (start, end) in zip(self.names, pairwise(self.ends), strict=True):
            with (path / name).open("x+b") as file:
                shape = (end - start, *result.shape[1:])
                create_npy(file, shape, result.dtype, fortran=False)
        return Target(str(path), self.names, self.ends)


@dataclass(frozen=True)
class Rows:
    """Files that together are an array, to be read at once."""

    files: tuple[str, ...]
    ends: tuple[int, ...]

    def __getitem__(self, region: tuple[slice, ...]) -> Any:
        start, stop, _ = region[0].indices(self.ends[-1])
        found = [
            np.load(file, mmap_mode="r")[(slice(max(start - first, 0), stop - first), *region[1:])]
            for file, (first, end) in zip(self.files, pairwise(self.ends), strict=True)
            if start < end and first < stop
        ]
        if not found:
            found = [np.load(self.files[0], mmap_mode="r")[(slice(0), *region[1:])]]
        return np.concatenate(found)


def opened_mask(path: Path, name: str, x: da.Array, run: str) -> da.Array:
    """Return the mask of an array of this name, to be read in the chunks of that array."""
    if path == STANDARD:
        raise ValueError(
            f"--where -: the mask of {name} is read piece by piece: give it as a .npy file"
        )
    with open_mask(path) as mask:
        assert mask is not None
        broadcast_mask(mask, name, x.shape)
        shape = mask.values.shape
    beside = x.chunks[x.ndim - len(shape) :]
    chunks = tuple((1,) if n == 1 else sizes for n, sizes in zip(shape, beside, strict=True))
    file = str(path.resolve())
    pieces = [Piece(file, region) for region in da.core.slices_from_chunks(chunks)]
    return _read_lazily(f"hoyer-mask-{run}", chunks, pieces, np.dtype(bool))


@dataclass(frozen=True)
class Piece:
    """A part of the array of a .npy file; wherever it is pickled to, it finds the file by name."""

    path: str
    region: tuple[Any, ...]


class Pieces(ArrayBlockwiseDep):  # type: ignore[misc]
    """The piece that each chunk of an array is."""

    def __init__(self, name: str, chunks: Any, pieces: list[Piece]) -> None:
        super().__init__(chunks)
        self.name = name
        self.pieces = dict(zip(np.ndindex(self.numblocks), pieces, strict=True))

    def __getitem__(self, place: tuple[int, ...]) -> Piece:
        return self.pieces[place]

    # Dask takes arguments of tasks that are fused for the same if their tokens are.
    def __dask_tokenize__(self) -> Any:
        return "hoyer-pieces", self.name


def _read_lazily(name: str, chunks: Any, pieces: list[Piece], dtype: Any) -> da.Array:
    """Return an array of this name, whose every chunk is made by one task, which reads it."""
    index = tuple(range(len(chunks)))
    given = Pieces(name, chunks, pieces)
    meta: Any = np.empty((0,) * len(index), dtype)
    return da.blockwise(
        _read, index, given, index, name=name, dtype=dtype, meta=meta, align_arrays=False
    )


def _read(piece: Piece) -> Any:
    return np.array(np.load(piece.path, mmap_mode="r")[piece.region])


class Target(NamedTuple):
    """Files that together take an array; wherever it is pickled to, it finds them by name."""

    folder: str
    names: tuple[str, ...]
    ends: tuple[int, ...]

    def __setitem__(self, region: tuple[slice, ...], block: Any) -> None:
        number = int(np.searchsorted(self.ends, region[0].start, side="right")) - 1
        while self.ends[number + 1] == region[0].start:
            number += 1
        start = self.ends[number]
        own = slice(region[0].start - start, region[0].stop - start)
        np.load(Path(self.folder, self.names[number]), mmap_mode="r+")[(own, *region[1:])] = block


def _by_number(path: Path) -> list[Any]:
    """Return what files are sorted by: numbers in their names count as numbers."""
    return [int(one) if one.isdigit() else one for one in re.split(r"(\d+)", path.name)]


def _header(path: Path) -> Any:
    with path.open("rb") as file:
        return open_npy(file, source_name(path))


def _rows(head: Any) -> list[slice]:
    """Return which rows of a file are read at a time."""
    row = max(head.nbytes // max(len(head), 1), 1)
    size = max(CHUNK_BYTES // row, 1)
    return [slice(i, min(i + size, len(head))) for i in range(0, len(head) or 1, size)]


# ---- computing, and where results go ----


@contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """Yield a client of the scheduler at an address; None for the threads of this process."""
    if address is None:
        yield None
        return
    try:
        from dask.distributed import Client  # noqa: PLC0415 - needed for clusters alone
    except ImportError:
        raise ValueError("--scheduler needs distributed: pip install distributed") from None
    try:
        client = Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"--scheduler {printable(address)}: no scheduler answers there ({error}); give the "
            "address that it prints when it starts, as tcp://127.0.0.1:8786"
        ) from None
    with client:
        yield client


def _store(result: da.Array, target: Any, run: str, client: Any, advance: Advance) -> None:
    """Compute all chunks and write each to its place."""
    shared = dask.delayed(Opaque(target), pure=False)
    blocks = result.to_delayed().ravel()
    slices = da.core.slices_from_chunks(result.chunks)
    prefix = f"hoyer-write-{run}-"
    writes = [
        dask.delayed(_write)(block, shared, Opaque(region), dask_key_name=f"{prefix}{i}")
        for i, (block, region) in enumerate(zip(blocks, slices, strict=True))
    ]
    if client is None:
        with _Counting(prefix, advance):
            dask.compute(*writes, scheduler="threads")
        return
    from dask.distributed import as_completed  # noqa: PLC0415 - there is a client

    for future in as_completed(client.compute(writes)):
        advance(future.result())


class Opaque(NamedTuple):
    """Something that Dask hands over as it is."""

    value: Any


def _write(block: Any, target: Any, region: Any) -> int:
    if block.size:
        target.value[region.value] = block
    return int(block.size)


class _Counting(Callback):  # type: ignore[misc]
    """Says how many entries were written, by tasks whose names begin like this."""

    def __init__(self, prefix: str, advance: Advance) -> None:
        super().__init__(posttask=self._done)
        self._prefix = prefix
        self._advance = advance

    def _done(self, key: Any, result: Any, *_: Any) -> None:
        if isinstance(key, str) and key.startswith(self._prefix):
            self._advance(result)
