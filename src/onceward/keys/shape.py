"""Reduce an object to its class name and its declared content, for the canonical encoding.

Objects of attrs and pydantic are recognised by their attributes, so neither has to be installed.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

import msgspec


class Instance(msgspec.Struct, frozen=True):
    """An object of the class `of` (module and qualified name), reduced to its content."""

    of: str
    content: object


class FieldMissing(Exception):
    """A declared field has no value."""


def class_name(cls: type) -> str:
    """Return the module and qualified name of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def instance_of(value: object) -> Instance | None:
    """Return the class and the content of `value`; None if its class declares no content."""
    cls = type(value)
    if isinstance(value, Instance):
        return value
    if isinstance(value, type):
        return None
    if isinstance(value, enum.Flag):
        return Instance(class_name(cls), value.value)  # a combination of flags need not have a name
    if isinstance(value, enum.Enum):
        return Instance(class_name(cls), value.name)
    if value is msgspec.UNSET:
        return Instance("msgspec.UNSET", None)
    if hasattr(cls, "__fspath__"):
        path = _path(value)
        if path is not None:
            return path
    if hasattr(cls, "__pydantic_validator__") and isinstance(getattr(cls, "model_fields", None), dict):
        return Instance(class_name(cls), _pydantic_fields(value, cls))
    names = _declared_fields(cls)
    if names is not None:
        fields = _fields(value, names)
        plain = None if hasattr(cls, "_fields") else _subclass(value, cls)
        return Instance(class_name(cls), fields if plain is None else [fields, plain.content])
    return _subclass(value, cls)


def _path(value: object) -> Instance | None:
    from pathlib import PurePath, PureWindowsPath  # imported here: a program with such a path has imported it

    if not isinstance(value, PurePath):
        return None
    flavour = "PureWindowsPath" if isinstance(value, PureWindowsPath) else "PurePosixPath"
    return Instance(f"pathlib.{flavour}", str(value))


def _declared_fields(cls: type) -> tuple[str, ...] | None:
    if issubclass(cls, msgspec.Struct):
        return cls.__struct_fields__
    if hasattr(cls, "__attrs_attrs__"):
        return tuple(attribute.name for attribute in cls.__attrs_attrs__)
    if hasattr(cls, "__dataclass_fields__"):
        return tuple(field.name for field in dataclasses.fields(cls))  # type: ignore[arg-type]  # it is a dataclass
    if issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple):
        return tuple(getattr(cls, "_fields"))  # noqa: B009 - no type checker knows it on `tuple`
    return None


def _fields(value: object, names: tuple[str, ...]) -> dict[str, object]:
    content: dict[str, object] = {}
    for name in names:
        try:
            content[name] = getattr(value, name)
        except AttributeError:
            raise FieldMissing(name) from None
    return content


def _pydantic_fields(value: object, cls: Any) -> dict[str, object]:
    """Return fields and allowed extras. Reads `__dict__`, because reading a deprecated attribute warns."""
    stored = vars(value)
    missing = [name for name in cls.model_fields if name not in stored]
    if missing:
        raise FieldMissing(missing[0])
    fields = {name: stored[name] for name in cls.model_fields}
    return fields | (getattr(value, "__pydantic_extra__", None) or {})


def _subclass(value: object, cls: type) -> Instance | None:
    """Return the value of a subclass as its plain base type. Overridden methods are not called."""
    name = class_name(cls)
    if isinstance(value, str):
        return Instance(name, str.__str__(value))
    if isinstance(value, int):
        return Instance(name, int.__index__(value))
    if isinstance(value, float):
        return Instance(name, float.__float__(value))
    if isinstance(value, bytes | bytearray):
        return Instance(name, bytes(memoryview(value)))
    if isinstance(value, dict):
        return Instance(name, dict(dict.items(value)))
    if isinstance(value, list):
        return Instance(name, list(list.__iter__(value)))
    if isinstance(value, tuple):
        return Instance(name, tuple(tuple.__iter__(value)))
    if isinstance(value, frozenset):
        return Instance(name, frozenset(frozenset.__iter__(value)))
    if isinstance(value, set):
        return Instance(name, frozenset(set.__iter__(value)))
    return None
