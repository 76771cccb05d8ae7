"""The `hoyer` command. It needs the extra ``cli``; importing this module does not."""

import io
import signal
import sys
from typing import NoReturn

from ..system import ending_signals

# What `pip install 'hoyer[cli]'` installs.
EXTRA = ("typer", "rich", "matplotlib")


def main() -> NoReturn:
    """Run the command line of this process and exit with 0, 2 (an error) or 130 (interrupted)."""
    # When asked to end, clean up first, as after Ctrl-C (but respect what nohup has set).
    for number in ending_signals():
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda number, frame: sys.exit(128 + number))
    # A character that the terminal's encoding lacks must not make a finished command fail: its
    # number is shown instead.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; errors are one line on stderr."""
    try:
        from .app import execute  # noqa: PLC0415 - without the extra this fails

        return execute(arguments)
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing not in EXTRA:
            raise
        print(
            f"hoyer: the command line needs {missing}: run  pip install 'hoyer[cli]'",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        # While modules were still being loaded; after that the command itself handles it.
        print("hoyer: interrupted", file=sys.stderr)
        return 130
