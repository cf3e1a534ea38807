"""Import the modules of optional dependencies."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from onceward.errors import MissingExtra


def import_extra(module: str, problem: str, hint: str) -> Any:
    """Return the module. If it is not installed, raise `MissingExtra` with this problem and hint."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(problem, hint=hint) from error
