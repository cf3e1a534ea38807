"""A system, by where it stands: `package.module:NAME`."""

from __future__ import annotations

from typing import cast

from onceward.cli.importing import named

from .contract import System


def find_system(place: str) -> System:
    """As the worker processes find it, too."""
    return cast("System", named(place))
