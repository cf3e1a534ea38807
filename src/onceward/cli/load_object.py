"""Import an object of the user's program by `module:name`."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from onceward.errors import ConfigurationError


def load_object(target: str) -> Any:
    """Return the object at `package.module:name`. Also searches the current directory, like `python -m`."""
    module, _, name = target.partition(":")
    if not module or not name:
        raise ConfigurationError(f"{target!r} is not the path of an object", hint="write package.module:name")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:
        if not (isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")):
            traceback.print_exc()  # the module exists, so the error is inside it
        what = error if isinstance(error, ImportError) else repr(error)
        raise ConfigurationError(f"{module} cannot be imported: {what}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigurationError(f"{module} has no {name!r}", hint="write package.module:name")
        found = getattr(found, part)
    return found
