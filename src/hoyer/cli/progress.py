"""The bar that long commands show on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

Advance: TypeAlias = Callable[[int], None]


@contextmanager
def progress_bar(name: str, total: int, *, show: bool) -> Iterator[Advance]:
    """Show a bar on stderr while the block runs, if that is a terminal; yield what moves it on."""
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not (show and sys.stderr.isatty()),
    ) as progress:
        task = progress.add_task(name, total=total)
        yield lambda amount: progress.advance(task, amount)
