"""Arrays in many pieces, larger than memory: Zarr stores, and folders of .npy parts, by Dask."""

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

try:
    import dask
    import dask.array as da
    from dask.callbacks import Callback
except ImportError:
    raise ValueError(
        "Zarr stores and folders of .npy files need Dask: pip install 'hoyer[dask]'"
    ) from None

import numpy as np

from ..api import project
from ..layout import layout_of
from ..options import Axis
from .blocks import describe
from .names import printable, source_name, speaking_of, target_name
from .npy import FileArray, open_npy
from .progress import Advance, progress_bar

CHUNK_BYTES = 1 << 26
"""Parts larger than this are read some rows at a time."""


def is_store(path: Path) -> bool:
    """Whether a folder is a Zarr store."""
    return any((path / name).exists() for name in ("zarr.json", ".zarray", ".zgroup"))


def project_folder(
    source: Path,
    target: Path,
    axis: Axis,
    options: dict[str, Any],
    *,
    where: FileArray | None = None,
    scheduler: str | None = None,
    force: bool = False,
) -> list[str]:
    """Project the array in a folder into another folder of the same kind, and say what was done.

    The result appears when it is complete, or not at all.
    """
    name = source_name(source)
    _refuse_existing(target, force=force)
    kind: Any = Store if is_store(source) else Parts
    given = kind.opened(source)
    mask = None if where is None else da.from_array(where.values, chunks=-1)
    with _cluster(scheduler) as client, speaking_of(name):
        result: Any = project(given.array, axis=axis, where=mask, **options)
        with _replacing(target) as folder:
            written = given.created(folder, result)
            with progress_bar(name, result.size, show=True) as advance:
                _store(result, written, client, advance)
    length = layout_of(result.shape, axis).length
    done = describe(result.size // max(length, 1), length, str(result.dtype))
    return [f"{target_name(target)}: {done}"]


# ---- what is in a folder ----


class Store(NamedTuple):
    """A Zarr array on disk."""

    array: da.Array

    @staticmethod
    def opened(path: Path) -> "Store":
        """Open it; nothing is read."""
        try:
            return Store(da.from_zarr(str(path)))
        except ImportError:
            raise ValueError(f"{source_name(path)} needs zarr: pip install zarr") from None
        except Exception as error:  # of whatever kind zarr has: it is no array, or damaged
            raise ValueError(
                f"{source_name(path)} cannot be read as a Zarr array ({error}); of a group name "
                "one array, as store.zarr/x"
            ) from None

    def created(self, path: Path, result: da.Array) -> Any:
        """Create an array for the result, with its chunks."""
        import zarr  # noqa: PLC0415 - it was needed to read, too

        return zarr.create_array(
            store=str(path),
            shape=result.shape,
            chunks=tuple(max(sizes) for sizes in result.chunks),
            dtype=result.dtype,
        )


class Parts(NamedTuple):
    """Files name-0.npy, name-1.npy ..., one after the other along the first axis."""

    array: da.Array
    names: tuple[str, ...]
    ends: tuple[int, ...]
    """Where along the first axis files begin and end."""

    @staticmethod
    def opened(path: Path) -> "Parts":
        """Look at the headers of all files; no numbers are read."""
        files = sorted(path.glob("*.npy"), key=_by_number)
        if not files:
            raise ValueError(f"{source_name(path)} is no Zarr store, and has no .npy files in it")
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
            da.map_blocks(
                _read,
                str(file),
                chunks=(_rows(head), *((size,) for size in head.shape[1:])),
                dtype=head.dtype,
                meta=np.empty((0,) * head.ndim, head.dtype),
            )
            for file, head in zip(files, heads, strict=True)
        ]
        ends = np.cumsum([0, *(len(head) for head in heads)]).tolist()
        return Parts(da.concatenate(pieces), tuple(file.name for file in files), tuple(ends))

    def created(self, path: Path, result: da.Array) -> "Target":
        """Create files for the result, named as the parts are."""
        path.mkdir()
        for name, (start, end) in zip(self.names, pairwise(self.ends), strict=True):
            shape = (end - start, *result.shape[1:])
            np.lib.format.open_memmap(path / name, "w+", result.dtype, shape)
        return Target(str(path), self.names, self.ends)


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


def _rows(head: Any) -> tuple[int, ...]:
    """Return how many rows of a file are read at a time."""
    row = max(head.nbytes // max(len(head), 1), 1)
    size = max(CHUNK_BYTES // row, 1)
    return tuple(min(size, len(head) - i) for i in range(0, len(head), size)) or (0,)


def _read(path: str, block_info: Any = None) -> Any:
    (start, end), *_ = block_info[None]["array-location"]
    return np.array(np.load(path, mmap_mode="r")[start:end])


# ---- where results go ----


def _refuse_existing(path: Path, *, force: bool) -> None:
    if not path.exists():
        return
    ours = path.is_dir() and (is_store(path) or any(path.glob("*.npy")))
    if not ours:
        raise ValueError(
            f"cannot write {target_name(path)}: it is there, and neither a Zarr store nor a folder "
            "of .npy files"
        )
    if not force:
        raise ValueError(f"{target_name(path)} exists: add --force to replace it")


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Yield the name of a folder that takes the place of another at the end of the block."""
    beside = target.resolve().parent
    temporary, old = (beside / f".hoyer-{secrets.token_hex(6)}.part" for _ in range(2))
    try:
        yield temporary
        if target.exists():
            os.replace(target, old)
        os.replace(temporary, target)
    finally:
        for path in (temporary, old):
            shutil.rmtree(path, ignore_errors=True)


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


def _store(result: da.Array, target: Any, client: Any, advance: Advance) -> None:
    """Compute all chunks and write each to its place."""
    shared = dask.delayed(Opaque(target), pure=False)
    blocks = result.to_delayed().ravel()
    slices = da.core.slices_from_chunks(result.chunks)
    writes = [
        dask.delayed(_write)(block, shared, Opaque(region), dask_key_name=f"hoyer-write-{i}")
        for i, (block, region) in enumerate(zip(blocks, slices, strict=True))
    ]
    if client is None:
        with _Counting(advance):
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
    """Says how many entries were written."""

    def __init__(self, advance: Advance) -> None:
        super().__init__(posttask=self._done)
        self._advance = advance

    def _done(self, key: Any, result: Any, *_: Any) -> None:
        if isinstance(key, str) and key.startswith("hoyer-write-"):
            self._advance(result)
