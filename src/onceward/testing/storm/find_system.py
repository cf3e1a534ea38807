"""Import a system by its path, `package.module:NAME`."""

from __future__ import annotations

from typing import cast

from onceward.cli.load_object import load_object
from onceward.errors import ConfigurationError

from .contract import System

REQUIRED_ATTRIBUTES = ("name", "effects", "open", "events", "worker", "audit")


def find_system(path: str) -> System:
    """Return the system at this path. Worker processes use this, too."""
    found = load_object(path)
    missing = [name for name in REQUIRED_ATTRIBUTES if not hasattr(found, name)]
    if missing:
        raise ConfigurationError(
            f"{path} is not a System: it lacks {', '.join(missing)}", hint="see docs/howto/storm.md"
        )
    if isinstance(found, type):
        raise ConfigurationError(
            f"{path} is a class", hint=f"pass an instance: {found.__name__.upper()} = {found.__name__}(…)"
        )
    return cast("System", found)
