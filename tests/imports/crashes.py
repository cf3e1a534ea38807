"""A crash between two batches of an import."""

from __future__ import annotations

from onceward.imports import Progress


class Halt(BaseException):
    """A crash, as far as one process can have it."""


def crash_at_once(progress: Progress) -> None:
    raise Halt
