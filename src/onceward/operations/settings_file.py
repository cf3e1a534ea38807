"""Files of settings: `onceward.toml`, or the part of a `pyproject.toml` that is ours."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from onceward.errors import ConfigurationError

FILES = ("onceward.toml", "pyproject.toml")
"""In this order; the first that says anything about Onceward counts."""

OPERATIONS = "operations"
"""The table of operations in such a file."""


def table_in(path: Path) -> dict[str, Any] | None:
    """What the file says about Onceward. None: nothing, which only a `pyproject.toml` may do."""
    content = _parsed(path)
    if path.name != FILES[1]:
        return content
    tool = content.get("tool", {})
    table = tool.get("onceward") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise ConfigurationError(f"{path.name}: tool.onceward is no table")
    return table


def found_in(folder: Path) -> tuple[dict[str, Any], str]:
    """The first file of a folder that has settings: what it says, and its name; nothing if there is none."""
    for name in FILES:
        if (folder / name).is_file():
            table = table_in(folder / name)
            if table is not None:
                return table, name
    return {}, ""


def operations_in(table: dict[str, Any], file: str) -> dict[str, dict[str, Any]]:
    """The operations that a file declares, as they are written."""
    operations = table.get(OPERATIONS, {})
    if not isinstance(operations, dict) or not all(isinstance(one, dict) for one in operations.values()):
        raise ConfigurationError(
            f"{file}: {OPERATIONS} is no table of operations", hint=f'write [{OPERATIONS}.email] and window = "24h"'
        )
    return operations


def store_in(path: Path) -> str | None:
    """The store that a file names, if it does."""
    store = (table_in(path) or {}).get("store")
    if store is not None and (not isinstance(store, str) or not store):
        raise ConfigurationError(f"{path.name}: store is {store!r}", hint='write store = "sqlite:///onceward.db"')
    return store


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # a TOMLDecodeError and a UnicodeDecodeError are ValueErrors
        raise ConfigurationError(f"{path.name} cannot be read: {error}") from error
