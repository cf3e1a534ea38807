"""Remove paths from a value without changing the original: `"meta.retry_count"`, `"items.*.ts"`.

A step names an entry of a mapping, an index of a list or tuple, or a declared field of an object; `*` means all of
them. Only the containers along the path are copied; the rest is shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onceward.errors import ConfigurationError

from .shape import FieldMissing, Instance, instance_of


def parse_path(path: str) -> tuple[str, ...]:
    """Return the steps of a dotted path."""
    steps = tuple(path.split("."))
    if not all(steps):
        raise ConfigurationError(f"the excluded path {path!r} has an empty step", hint='write "meta.retry_count"')
    return steps


def remove_path(value: object, steps: Sequence[str]) -> tuple[object, bool]:
    """Return `value` without the path, and whether the path occurred. `*` in an empty container counts as occurred."""
    if type(value) is dict:
        return remove_entries(value, steps)
    if type(value) is list:
        return _remove_items(value, steps)
    if type(value) is tuple:
        items, occurred = _remove_items(value, steps)
        return tuple(items), occurred
    instance = _instance(value)
    if instance is None:
        return value, False
    content, occurred = remove_path(instance.content, steps)
    return (Instance(instance.of, content), True) if occurred else (value, False)


def _instance(value: object) -> Instance | None:
    try:
        instance = instance_of(value)
    except FieldMissing:
        return None  # the encoder reports it, with its path
    return instance if instance is not None and isinstance(instance.content, dict | list | tuple) else None


def _matches(key: object, step: str) -> bool:
    return step in (key, "*") or (type(key) is int and step == str(key))


def remove_entries(entries: dict[Any, object], steps: Sequence[str]) -> tuple[dict[Any, object], bool]:
    """Return a dict without the path, and whether the path occurred."""
    occurred = steps[0] == "*" and not entries
    kept: dict[object, object] = {}
    for key, value in entries.items():
        if not _matches(key, steps[0]):
            kept[key] = value
        elif len(steps) == 1:
            occurred = True
        else:
            kept[key], inside = remove_path(value, steps[1:])
            occurred = occurred or inside
    return kept, occurred


def _remove_items(items: Sequence[object], steps: Sequence[str]) -> tuple[list[object], bool]:
    occurred = steps[0] == "*" and not items
    kept: list[object] = []
    for index, value in enumerate(items):
        if not _matches(index, steps[0]):
            kept.append(value)
        elif len(steps) == 1:
            occurred = True
        else:
            stripped, inside = remove_path(value, steps[1:])
            kept.append(stripped)
            occurred = occurred or inside
    return kept, occurred
