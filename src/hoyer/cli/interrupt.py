"""Ctrl-C: how a command that was stopped says so."""


class Interrupted(Exception):  # noqa: N818 - the user's wish, no error
    """The user stopped a command; the message says what that means."""
