"""threadpoolctl: the core's threads are seen by it, and keep to its limits."""

import ctypes
from typing import Any


def register() -> None:
    """Make the core known to threadpoolctl, if that is installed.

    It must be before anybody asks threadpoolctl what is loaded: it remembers libraries that it did
    not know. So it is imported here, which takes a few milliseconds.
    """
    try:
        from threadpoolctl import LibController, register  # noqa: PLC0415 - optional
    except ImportError:
        return

    class Count(int):
        """How many threads there are; to set it means to set what had been set then, if anything.

        So threadpoolctl, which puts back what it found, leaves no limit behind.
        """

        was_set: int

    class HoyerController(LibController):  # type: ignore[misc]
        """The core, by the functions that it exports for this."""

        user_api = internal_api = "hoyer"
        # Others have a `_core` as well.
        filename_prefixes = ("_core",)
        check_symbols = ("hoyer_get_num_threads", "hoyer_set_num_threads", "hoyer_num_threads_set")

        def get_num_threads(self) -> int:
            count = Count(self.dynlib.hoyer_get_num_threads())
            count.was_set = self.dynlib.hoyer_num_threads_set()
            return count

        def set_num_threads(self, num_threads: int) -> None:
            count = num_threads.was_set if isinstance(num_threads, Count) else max(1, num_threads)
            self.dynlib.hoyer_set_num_threads(ctypes.c_int(count))

        def get_version(self) -> Any:
            # Asked of everything with that prefix.
            return None

    register(HoyerController)
