"""All commands, and what becomes of their errors: one line and an exit code."""

import sys
from typing import Annotated

import typer

from .. import __version__
from .measure import measure
from .names import printable
from .project import project
from .reproduce import Interrupted, reproduce

# What a shell expects of a command that was stopped by Ctrl-C, and what Typer returns then.
INTERRUPTED = 130

app = typer.Typer(
    name="hoyer",
    add_completion=False,
    rich_markup_mode=None,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(project)
app.command()(measure)
app.command()(reproduce)


def execute(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    try:
        # On its own Typer shows errors in a box of several lines.
        code = app(arguments, prog_name="hoyer", standalone_mode=False)
    except typer.TyperException as error:
        # The prefix comes from the library with which Typer checks values.
        return _complain(error.format_message().replace("Value error, ", ""))
    except Interrupted as stop:
        return _complain(str(stop), INTERRUPTED)
    except OSError as error:
        what = error.strerror or str(error)
        return _complain(f"{error.filename}: {what}" if error.filename else what)
    except MemoryError as error:
        return _complain(f"not enough memory: {error}")
    except (ValueError, TypeError) as error:
        return _complain(str(error))
    if code == INTERRUPTED:
        return _complain("interrupted", INTERRUPTED)
    return code if isinstance(code, int) else 0


def _complain(message: str, code: int = 2) -> int:
    print("hoyer:", printable(" ".join(message.split())), file=sys.stderr)
    return code


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hoyer {__version__}")
        raise typer.Exit()


@app.callback()
def start(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Project vectors onto a chosen sparseness, measure how sparse they are, repeat the paper."""
    if context.invoked_subcommand is None and not version:
        typer.echo(context.get_help())
