"""A crash between two batches of an import."""

from __future__ import annotations

from onceward.imports import Progress


class Halt(BaseException):
    """An exception that stands for a crash."""


def crash_at_once(progress: Progress) -> None:
    raise Halt
