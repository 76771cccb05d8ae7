"""The `hoyer` command."""
