"""Callbacks around a fork. Windows has no fork: there they are never called."""

from __future__ import annotations

import os
from collections.abc import Callable


def call_in_forked_child(callback: Callable[[], None]) -> None:
    """Call it in every child process that is forked from now on."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=callback)


def call_around_fork(
    *, before: Callable[[], None], after_in_parent: Callable[[], None], after_in_child: Callable[[], None]
) -> None:
    """Call them at every fork from now on: before it, and after it in each of the two processes."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=after_in_parent, after_in_child=after_in_child)
