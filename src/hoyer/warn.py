"""Warnings that show a line of the user's, not one of a library's."""

import sys
import warnings

LIBRARIES = ("hoyer", "joblib", "sklearn", "torch")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the nearest caller outside the libraries.

    How many frames lie in between depends on what they put there: hooks, contexts, properties.
    """
    frame, level = sys._getframe(1), 2
    # Invariant: `frame` is the one that `level` stands for.
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] in LIBRARIES:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
