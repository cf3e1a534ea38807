"""A system, by where it stands: `package.module:NAME`."""

from __future__ import annotations

from typing import cast

from onceward.cli.load_object import load_object
from onceward.errors import ConfigurationError

from .contract import System

PARTS = ("name", "effects", "open", "events", "worker", "audit")


def find_system(place: str) -> System:
    """As the worker processes find it, too."""
    found = load_object(place)
    missing = [part for part in PARTS if not hasattr(found, part)]
    if missing:
        raise ConfigurationError(f"{place} is no System: it has no {', no '.join(missing)}", hint="docs/howto/storm.md")
    if isinstance(found, type):
        raise ConfigurationError(f"{place} is a class", hint=f"name an object of it: {found.__name__.upper()} = …()")
    return cast("System", found)
