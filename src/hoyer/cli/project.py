"""``hoyer project``: the vectors of a file, projected, into another file."""

import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from ..api import project as project_array
from ..api import project_ as project_in_place
from ..families import not_finite
from ..layout import vector_axes
from ..options import Axis, Solver
from .arguments import (
    VECTORS,
    ArraysOption,
    AxisOption,
    DelimiterOption,
    HeaderOption,
    IndexOption,
    parse_norm,
    parse_number,
    parsed_option,
)
from .blocks import (
    Array,
    Index,
    Vectors,
    as_vectors,
    blocks,
    describe,
    exceeds_block,
    first_not_finite,
    kind_of_single,
    require_memory,
)
from .files import (
    TABLES,
    Reading,
    Source,
    broadcast_mask,
    is_folder,
    kind_of,
    open_mask,
    open_source,
    read_table,
)
from .names import STANDARD, printable, source_name, speaking_of, target_name
from .npy import FileArray, create_npy, open_npy, open_npz, write_member
from .progress import Advance, progress_bar
from .replace import refuse_existing, replacing
from .tables import Dialect, write_csv

SolverOption = Annotated[
    Solver, typer.Option(help="How to search. All give the same result; 'auto' is the fastest.")
]

FiniteOption = Annotated[
    bool,
    typer.Option(
        "--check-finite/--no-check-finite",
        help="Whether NaN or infinity is an error; if not, vectors that have any become NaN, "
        "and a missing number of a .csv or .tsv file is NaN too, as pandas reads it.",
    ),
]

NormOption = Annotated[
    Any,
    parsed_option(
        parse_norm,
        "NUMBER|keep|nearest",
        "The Euclidean norm wanted: a number, 'keep' for each vector's own, 'nearest' for "
        "whatever changes the vector least. With --sparseness alone it is 1, with --l1 alone any.",
    ),
]

SumOption = Annotated[
    float | None,
    parsed_option(
        parse_number,
        "NUMBER",
        "The sum of magnitudes wanted; alone, with --nonnegative, it makes vectors that sum to it.",
    ),
]

MaskOption = Annotated[
    Path | None,
    typer.Option(
        metavar="MASK",
        help="A .npy file of booleans that broadcasts to the shape of IN: only where it is True do "
        "entries form the vectors; the others, NaN or missing as they may be, become 0.",
    ),
]

AtMostOption = Annotated[
    bool,
    typer.Option(
        "--at-most",
        help="Take --l1, or --l1 and --l2, as upper bounds: vectors within them stay as they are.",
    ),
]

SchedulerOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Of a Zarr store or a folder: the scheduler of a Dask cluster that computes, as "
        "tcp://10.0.0.1:8786; its workers must see IN and OUT under the same names.",
    ),
]

SparsenessOption = Annotated[
    float | None,
    parsed_option(
        parse_number,
        "NUMBER",
        "The sparseness wanted, from 0 (all entries equal in size) to 1 (only one nonzero entry).",
        "--sparseness",
        "-s",
    ),
]


def project(
    source: Annotated[
        Path,
        typer.Argument(metavar="IN", help=VECTORS),
    ],
    target: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="Where to put the result: a file or folder of that kind; - is standard output.",
        ),
    ],
    *,
    sparseness: SparsenessOption = None,
    l1: SumOption = None,
    l2: NormOption = None,
    axis: AxisOption = "-1",
    where: MaskOption = None,
    nonnegative: Annotated[
        bool, typer.Option("--nonnegative", help="Make no entry negative. By default signs stay.")
    ] = False,
    only_increase: Annotated[
        bool,
        typer.Option(
            "--only-increase", help="Leave vectors that are sparser already as sparse as they are."
        ),
    ] = False,
    at_most: AtMostOption = False,
    solver: SolverOption = "auto",
    check_finite: FiniteOption = True,
    arrays: ArraysOption = None,
    delimiter: DelimiterOption = None,
    header: HeaderOption = None,
    index_col: IndexOption = None,
    scheduler: SchedulerOption = None,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Replace OUT if it exists; it may be IN itself.")
    ] = False,
) -> None:
    """Project the vectors of a file onto a sparseness or norms.

    The rows of a matrix are its vectors, unless --axis says otherwise. A .csv file with a single
    column of numbers is one vector; its header and a column of labels, as the index that pandas
    writes, are carried over. An .npz archive has every array projected under its name; single
    values, and what --arrays does not name, are copied. OUT appears when it is complete, or not at
    all; a .npy file may be larger than memory. So may a Zarr store, or a folder of .npy files that
    follow one another along the first axis, which Dask reads piece by piece.

    For example:

      hoyer project weights.npy sparse.npy --sparseness 0.9

      hoyer project weights.npy weights.npy -s 0.9 --l2 keep --force

      hoyer project table.csv sparse.csv -s 0.8 --axis 0 --nonnegative

      hoyer project model.npz sparse.npz -s 0.9 --arrays weights,kernel

      hoyer project scores.npy shares.npy --l1 1 --nonnegative --where mask.npy

      produce | hoyer project - - -s 0.9 > sparse.npy

      hoyer project store.zarr sparse.zarr -s 0.9 --axis all --scheduler tcp://10.0.0.1:8786
    """
    if sparseness is None and l1 is None:
        raise ValueError(
            "no target: give --sparseness (alone, with --l1, or with --l2), or --l1 (alone, or "
            "with --l2)"
        )
    options = {
        "sparseness": sparseness,
        "l1": l1,
        "l2": l2,
        "nonnegative": nonnegative,
        "only_increase": only_increase,
        "at_most": at_most,
        "solver": solver,
        "check_finite": check_finite,
    }
    missing = where is not None or not check_finite
    reading = Reading(arrays, Dialect(delimiter, header, index_col, missing=missing))
    if is_folder(source):
        reading.check(source_name(source), None)
        # Dask takes a second to load.
        from .dask import project_folder  # noqa: PLC0415

        given: dict[str, Any] = {"where": where, "scheduler": scheduler, "force": force}
        done = project_folder(source, target, axis, options, **given)
        typer.echo("\n".join(done))
        return
    if scheduler is not None:
        raise ValueError(
            f"--scheduler is for Zarr stores and folders of .npy files; {source_name(source)} is "
            "none"
        )
    project_file(source, target, axis, options, reading, where=where, force=force)


def project_file(
    source: Path,
    target: Path,
    axis: Axis,
    options: dict[str, Any],
    reading: Reading = Reading(),  # noqa: B008 - a tuple
    *,
    where: Path | None = None,
    force: bool = False,
) -> None:
    """Project the vectors of a file into another of the same kind; "-" is standard input or output.

    `options` are the other keyword arguments of `hoyer.project`; `where` is the file of the mask.
    If anything is wrong (ValueError, TypeError) the target is as it was.
    """
    # Checked before a long computation; `replacing` checks again. That IN is missing matters more,
    # and is said when it is opened.
    if source == STANDARD or source.exists():
        refuse_existing(target, force=force)
    if where == STANDARD == source:
        raise ValueError("--where - with IN -: standard input can be the vectors or the mask")
    with open_source(source, reading) as opened, open_mask(where) as mask:
        check_target(target, opened)
        project_kind = {".npy": project_npy, ".npz": project_npz}.get(opened.kind, project_table)
        done = project_kind(opened, target, Projector(axis, options, reading, mask), force)
    # Words would spoil a result on standard output.
    typer.echo("\n".join(done), err=target == STANDARD)


def check_target(target: Path, source: Source) -> None:
    """Refuse a target that does not suit the kind of file."""
    if target != STANDARD:
        if kind_of(target) != source.kind:
            raise ValueError(
                f"{target_name(target)}: the result of {source.name} must be a {source.kind} file "
                "too"
            )
    elif sys.stdout is None:
        raise ValueError("cannot write standard output: it is closed")
    elif source.kind not in TABLES and sys.stdout.isatty():
        raise ValueError(
            f"the result of {source.name} is a {source.kind} file, and standard output is a "
            "terminal: redirect it with > FILE"
        )


class Projector(NamedTuple):
    """Projects the vectors of arrays, as the options say."""

    axis: Axis
    options: dict[str, Any]
    reading: Reading
    mask: FileArray | None = None

    def result_type(self, name: str, x: Array, advice: str = "") -> np.dtype[Any]:
        """Return the type of the result; refuse arrays and targets that cannot be projected."""
        with speaking_of(name, advice if advice and self.suits_some() else ""):
            length = as_vectors(x, self.axis).length
            where = None if self.mask is None else np.empty((0, length), np.bool_)
            none: Array = np.empty((0, length), x.dtype)
            result: Array = project_array(none, where=where, **self.options)
        if self.mask is not None:
            self.mask_like(name, x, self.mask)
        return result.dtype

    def mask_like(self, name: str, x: Array, mask: FileArray) -> Vectors:
        """View the mask as vectors, entry by entry beside those of x; nothing is copied."""
        return as_vectors(broadcast_mask(mask, name, x.shape), self.axis)

    def suits_some(self) -> bool:
        """Whether the target is possible for vectors that are long enough; if not, for none."""
        try:
            project_array(np.empty((0, 2**40)), **self.options)
        except (ValueError, TypeError):
            return False
        return True

    def run(self, name: str, x: Array, out: Array) -> str:
        """Project the vectors of x into `out` block by block, and say what was done."""
        given, result = as_vectors(x, self.axis), as_vectors(out, self.axis)
        mask = None if self.mask is None else self.mask_like(name, x, self.mask)
        with progress_bar(name.rstrip(","), x.size, show=exceeds_block(x.size)) as advance:
            for index in blocks(given.batch, given.length):
                where = None if mask is None else mask.array[index]
                options = {**self.options, "axis": given.axes, "where": where}
                with speaking_of(name):
                    try:
                        run_block(given.array[index], result.array[index], options, advance)
                    except ValueError as error:
                        raise ValueError(why_not(given, index, where, error)) from error
        return describe(result.number, result.length, str(out.dtype))


def run_block(x: Array, out: Array, options: dict[str, Any], advance: Advance) -> None:
    """Project a block of vectors; a single vector longer than a block in place."""
    if not exceeds_block(x.size):
        project_array(x, out=out, **options)
        advance(x.size)
        return
    for piece in blocks(x.shape, 1):
        out[piece] = x[piece]
        advance(x[piece].size)
    project_in_place(out, **options)


def project_npy(source: Source, target: Path, projector: Projector, force: bool) -> list[str]:
    """Project the array of a .npy file; neither it nor the result is ever in memory whole."""
    x = open_npy(source.file, source.name)
    dtype = projector.result_type(source.name, x)
    with replacing(target, force=force) as file:
        out = create_npy(file, x.shape, dtype, fortran=wants_fortran(x, projector))
        done = projector.run(source.name, x, out)
        del out  # its map keeps the file, on Windows, from getting its name
    return [f"{target_name(target)}: {done}"]


def project_npz(source: Source, target: Path, projector: Projector, force: bool) -> list[str]:
    """Project the chosen arrays of an .npz archive, one at a time; copy the others."""
    done, copied, projected = [], 0, 0
    with (
        open_npz(source.file, source.name, projector.reading.arrays) as given,
        replacing(target, force=force) as file,
        zipfile.ZipFile(file, "w") as archive,
    ):
        for member, meant in given.members():
            if not meant:
                given.copy(member, archive)
                copied += 1
                continue
            found = given.read(member)
            name, x = found.name, found.values
            label = f"{target_name(target)}, array '{printable(str(found.array))}'"
            if found.single:
                given.copy(member, archive)
                done.append(f"{label}: {kind_of_single(x)}, copied")
                continue
            dtype = projector.result_type(name, x, found.advice)
            require_memory(f"the result of {name[:-1]}", x.size * dtype.itemsize)
            out = np.empty(x.shape, dtype)
            done.append(f"{label}: {projector.run(name, x, out)}")
            write_member(archive, member, out)
            projected += 1
        if not projected:
            raise ValueError(f"{source.name} has nothing to project, only single values")
    others = f"{copied} other member{'' if copied == 1 else 's'} copied"
    return done + [f"{target_name(target)}: {others}"] * bool(copied)


def project_table(source: Source, target: Path, projector: Projector, force: bool) -> list[str]:
    """Project the numbers of a .csv or .tsv file."""
    table = read_table(source, projector.reading)
    out = np.empty(table.values.shape, projector.result_type(source.name, table.values))
    done = projector.run(source.name, table.values, out)
    with replacing(target, force=force) as file:
        write_csv(file, table._replace(values=out))
    table.print_note()
    labels = table.label_column_name()
    carried = "" if labels is None else f"; labels in {labels} carried over"
    return [f"{target_name(target)}: {done}{carried}"]


def wants_fortran(x: Array, projector: Projector) -> bool:
    """Whether the result is to be stored column by column."""
    if not exceeds_block(as_vectors(x, projector.axis).length):
        return bool(x.flags.fnc)
    # A vector longer than a block is projected in place: where it can be contiguous, it should be.
    return projector.axis is not None and vector_axes(projector.axis, x.ndim) == (0,) and x.ndim > 1


def why_not(vectors: Vectors, index: Index, where: Array | None, error: ValueError) -> str:
    """Say which vector has NaN or infinity; if none has, what the library said."""
    block = vectors.array[index]
    place = first_not_finite(block, where)
    if place is None:
        return str(error)
    inner = len(vectors.axes)
    starts = [cut.start for cut in index] + [0] * (len(vectors.batch) - len(index))
    vector = [i + start for i, start in zip(place[:-inner], starts, strict=True)]
    which = f" of vector {_place(vector)}" if vector else ""
    return not_finite(block[place], _place(place[-inner:]), f"{which} (counted from 0)")


def _place(indices: Sequence[int]) -> str:
    return str(indices[0]) if len(indices) == 1 else str(tuple(indices))
