"""What ends a storm before its time."""

from __future__ import annotations


class Trouble(Exception):
    """The run cannot go on; nothing can be said about the promises."""
