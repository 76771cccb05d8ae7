"""The paper, to be read beside it: its algorithms, the older methods, the collection of inputs.

`algorithms` holds Algorithms 1 to 3 of Thom and Palm, `hoyer2004` and `potluru2013` the two
methods that the paper builds on, `problems` the inputs that tests, experiments and benchmarks
share, `experiments` what ``hoyer reproduce`` runs. Nothing in here is fast, and nothing outside the
command line, the tests, the examples and the benchmarks imports it; `hoyer` does when it is asked
for ``hoyer.paper``.
"""

from importlib import import_module
from typing import Any

__all__ = ["algorithms", "experiments", "hoyer2004", "potluru2013", "problems"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
