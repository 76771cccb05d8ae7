"""``python -m hoyer`` is the `hoyer` command."""

from .cli import main

main()
