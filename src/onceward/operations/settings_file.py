"""Settings files: `onceward.toml`, or the table `tool.onceward` of a `pyproject.toml`."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path
from typing import Any

from onceward.errors import ConfigurationError

FILES = ("onceward.toml", "pyproject.toml")
"""In order of priority: only the first file that has Onceward settings is used."""

OPERATIONS = "operations"
"""The name of the operations table in such a file."""


def read_settings(path: Path) -> dict[str, Any] | None:
    """Return the file's Onceward settings. None: a `pyproject.toml` without any."""
    content = _parse(path)
    if path.name != FILES[1]:
        return content
    tool = content.get("tool", {})
    table = tool.get("onceward") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise ConfigurationError(f"{path.name}: tool.onceward is not a table")
    return table


def find_settings(folder: Path) -> tuple[dict[str, Any], str]:
    """Return the settings of the first file in the folder that has any, and its name; ({}, "") if none has.

    Files of another user, and files that everyone can write to, are ignored: they could redirect the command.
    """
    for name in FILES:
        if (folder / name).is_file() and not is_untrusted(folder / name):
            table = read_settings(folder / name)
            if table is not None:
                return table, name
    return {}, ""


def is_untrusted(path: Path) -> bool:
    """Return whether the owner is neither you nor root, or everyone can write to the file. Always False on Windows."""
    if not hasattr(os, "getuid"):
        return False
    status = path.stat()
    return status.st_uid not in (0, os.getuid()) or bool(status.st_mode & stat.S_IWOTH)


def untrusted_files(folder: Path) -> list[Path]:
    """Return the settings files of the folder that `find_settings` ignores."""
    return [path for name in FILES if (path := folder / name).is_file() and is_untrusted(path)]


def declared_operations(table: dict[str, Any], file: str) -> dict[str, dict[str, Any]]:
    """Return the operations that a file declares, as written."""
    operations = table.get(OPERATIONS, {})
    if not isinstance(operations, dict) or not all(isinstance(one, dict) for one in operations.values()):
        raise ConfigurationError(
            f"{file}: {OPERATIONS} is not a table of operations", hint=f'write [{OPERATIONS}.email] and window = "24h"'
        )
    return operations


def declared_store(path: Path) -> str | None:
    """Return the store URL that the file declares, or None."""
    store = (read_settings(path) or {}).get("store")
    if store is not None and (not isinstance(store, str) or not store):
        what = type(store).__name__ if store else "empty"  # not the value, which may contain a password
        raise ConfigurationError(
            f"{path.name}: store is {what}, not a URL", hint='write store = "sqlite:///onceward.db"'
        )
    return store


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # editors on Windows may add a BOM
    except (OSError, ValueError, RecursionError) as error:  # two of TOML and UTF-8 are ValueErrors
        raise ConfigurationError(f"{path.name} cannot be read: {error}") from error
