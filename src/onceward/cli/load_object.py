"""What a program has made, found by where it stands: `module:name`."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from onceward.errors import ConfigurationError


def named(place: str) -> Any:
    """The object at `package.module:name`. Modules are looked for in the current folder, too, as `python -m` does."""
    module, _, name = place.partition(":")
    if not module or not name:
        raise ConfigurationError(f"{place!r} names no object", hint="write package.module:name")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:
        if not (isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")):
            traceback.print_exc()  # it is there, so the trouble is inside of it
        what = error if isinstance(error, ImportError) else repr(error)
        raise ConfigurationError(f"{module} cannot be imported: {what}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigurationError(f"{module} has no {name}", hint="write package.module:name")
        found = getattr(found, part)
    return found
