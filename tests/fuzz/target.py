"""What a fuzz target is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Target(NamedTuple):
    """A parser: what it is called with, the errors that it may raise, and its valid inputs."""

    call: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    seeds: tuple[bytes, ...]
