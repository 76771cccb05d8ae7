"""What messages call files, arrays and fields: one line, and nothing that moves the cursor."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from reprlib import Repr

# Stands for standard input or output. No file could have this name, as it has no suffix.
STANDARD = Path("-")

# Words of the library -> those of the command line.
_SWITCH = re.compile(r"\b(nonnegative|only_increase|at_most)=True\b")
_WORDS = {
    "check_finite=False": "--no-check-finite",
    "pass where=isfinite(x) (True for entries that count)": "give a mask as --where",
}

_SHORT = Repr()
_SHORT.maxstring = 60


def printable(text: str) -> str:
    r"""Return a text with escapes for all characters that a terminal would not simply show.

    Examples
    --------
    >>> print(printable("a\x1b[31mb"))
    a\x1b[31mb
    """
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def quoted(text: str) -> str:
    """Return what was found in a file, in quotes and not too long."""
    return _SHORT.repr(text)


def listed(names: list[str], limit: int = 10) -> str:
    """Return names separated by commas; if there are many, some of them and how many more."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(map(printable, names[:limit])) + more


def source_name(path: Path) -> str:
    """Return what messages call a file that is read."""
    return "standard input" if path == STANDARD else printable(str(path))


def target_name(path: Path) -> str:
    """Return what messages call a file that is written."""
    return "standard output" if path == STANDARD else printable(str(path))


def as_flags(text: str) -> str:
    """Return what the library said with its switches called as they are on the command line.

    Examples
    --------
    >>> as_flags("only_increase=True with at_most=True: give one of the two")
    '--only-increase with --at-most: give one of the two'
    """
    for word, flag in _WORDS.items():
        text = text.replace(word, flag)
    return _SWITCH.sub(lambda found: "--" + found[1].replace("_", "-"), text)


@contextmanager
def speaking_of(name: str, advice: str = "") -> Iterator[None]:
    """Turn errors of the library, which calls the array x, into errors that name the file."""
    try:
        yield
    except (ValueError, TypeError) as error:
        text = as_flags(str(error))
        # The comma at the end of "file, array 'x'," only suits a verb.
        said = name + text[1:] if text.startswith("x ") else f"{name.rstrip(',')}: {text}"
        raise ValueError(said + advice) from error
