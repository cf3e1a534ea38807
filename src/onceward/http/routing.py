"""Find the handler of a message by the shape of its JSON object, by its attributes, or by both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec

from onceward.errors import ConfigurationError

from .envelope import PushMessage

NO_MATCH: Final = object()
"""The JSON object does not have this shape."""

Shape = type | Collection[str] | None
"""A class (msgspec, dataclass, TypedDict, attrs, pydantic), or the names of required members."""


class RouteMatcher:
    """The shape and attributes that a message must have."""

    def __init__(self, shape: Any, attributes: Mapping[str, str] | None) -> None:
        self._convert = _converter(shape)
        self._attributes = dict(attributes or {})
        for name, value in self._attributes.items():
            if not (isinstance(name, str) and isinstance(value, str)):
                raise ConfigurationError(f"names and values of attributes must be str, not {name!r}: {value!r}")
        self._any_shape = shape is None
        self.matches_all = shape is None and not self._attributes

    def match(self, message: PushMessage[Any]) -> PushMessage[Any] | None:
        """Return the message with its payload converted to this shape; None if it does not match."""
        if any(message.attributes.get(name) != value for name, value in self._attributes.items()):
            return None
        if not (message.data or self._any_shape):  # without data nothing matches, even if all members are optional
            return None
        payload = self._convert(message.payload)
        return None if payload is NO_MATCH else msgspec.structs.replace(message, payload=payload)


def _converter(shape: Any) -> Callable[[dict[str, Any]], Any]:
    if shape is None:
        return lambda payload: payload
    if isinstance(shape, type):
        return _class_converter(shape)
    if isinstance(shape, str) or not isinstance(shape, Collection):
        raise ConfigurationError(
            f"{shape!r} is not a valid shape", hint='pass a class, or the names of members: {"service", "status"}'
        )
    names = frozenset(shape)
    if not names or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(
            "a shape must list the names of required members", hint='such as {"service", "status"}'
        )
    return lambda payload: payload if names <= payload.keys() else NO_MATCH


def _class_converter(shape: Any) -> Callable[[dict[str, Any]], Any]:
    validate = getattr(shape, "model_validate", None)  # pydantic's

    def convert(payload: dict[str, Any]) -> Any:
        try:
            return msgspec.convert(payload, shape) if validate is None else validate(payload)
        except (msgspec.ValidationError, ValueError):  # pydantic's errors are ValueErrors
            return NO_MATCH

    if validate is None and not _has_members(shape):
        raise ConfigurationError(
            f"{shape!r} is not a valid shape", hint="pass a class with members, or the names of members"
        )
    if validate is None:
        msgspec.json.Decoder(shape)  # built now: two threads that build it at the same time would crash the process
    return convert


def _has_members(shape: Any) -> bool:
    from msgspec import inspect  # only while routes are declared

    return isinstance(inspect.type_info(shape), inspect.StructType | inspect.DataclassType | inspect.TypedDictType)
