"""Which handler a message belongs to: by the shape of its object, by its attributes, or by both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec

from onceward.errors import ConfigurationError

from .envelope import PushMessage

UNFIT: Final = object()
"""The object does not have this shape."""

Shape = type | Collection[str] | None
"""A class (msgspec, dataclass, TypedDict, attrs, pydantic), or the names of the members that must be there."""


class Match:
    """What a message must look like. `fit` gives the message as its handler wants it."""

    def __init__(self, shape: Any, attributes: Mapping[str, str] | None) -> None:
        self._convert = _converter(shape)
        self._attributes = dict(attributes or {})
        for name, value in self._attributes.items():
            if not (isinstance(name, str) and isinstance(value, str)):
                raise ConfigurationError(f"attributes are texts, not {name!r}: {value!r}")
        self._shapeless = shape is None
        self.matches_all = shape is None and not self._attributes

    def fit(self, message: PushMessage[Any]) -> PushMessage[Any] | None:
        """The message with its payload in this shape; None if it is not for this route."""
        if any(message.attributes.get(name) != value for name, value in self._attributes.items()):
            return None
        if not (message.data or self._shapeless):  # no object has no shape, also where all members may be missing
            return None
        payload = self._convert(message.payload)
        return None if payload is UNFIT else msgspec.structs.replace(message, payload=payload)


def _converter(shape: Any) -> Callable[[dict[str, Any]], Any]:
    if shape is None:
        return lambda payload: payload
    if isinstance(shape, type):
        return _of_class(shape)
    if isinstance(shape, str) or not isinstance(shape, Collection):
        raise ConfigurationError(
            f"{shape!r} is no shape", hint='give a class, or the names of members: {"service", "status"}'
        )
    names = frozenset(shape)
    if not names or not all(isinstance(name, str) for name in names):
        raise ConfigurationError("a shape names the members that must be there", hint='such as {"service", "status"}')
    return lambda payload: payload if names <= payload.keys() else UNFIT


def _of_class(shape: Any) -> Callable[[dict[str, Any]], Any]:
    validate = getattr(shape, "model_validate", None)  # pydantic's

    def convert(payload: dict[str, Any]) -> Any:
        try:
            return msgspec.convert(payload, shape) if validate is None else validate(payload)
        except (msgspec.ValidationError, ValueError):  # pydantic's errors are ValueErrors
            return UNFIT

    if validate is None and not _has_members(shape):
        raise ConfigurationError(f"{shape!r} is no shape", hint="give a class with members, or their names")
    if validate is None:
        msgspec.json.Decoder(shape)  # now: two threads that are the first to convert one would crash the process
    return convert


def _has_members(shape: Any) -> bool:
    from msgspec import inspect  # only while routes are declared

    return isinstance(inspect.type_info(shape), inspect.StructType | inspect.DataclassType | inspect.TypedDictType)
