"""Shapes: how the state of an instance of a declared class is read and restored.

A shape reads the state of an instance, not its constructor arguments, and restores the instance by setting that state.
Neither `__init__` nor validators run on a replay (except `__post_init__` of msgspec, which cannot be skipped): they
could produce another value, or have side effects a second time.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

State = dict[str, Any]


class HiddenState(Exception):
    """An instance has state outside its declared fields. Do not log the message: a name may be payload."""


class FieldsChanged(Exception):
    """The stored state does not match the current class."""


class Shape(msgspec.Struct, frozen=True):
    """One class: `take` returns the state of an instance, `build` creates an instance from a state."""

    name: str
    cls: type
    take: Callable[[Any], State]
    build: Callable[[State], Any]


def class_name(cls: type) -> str:
    """Return the name under which instances of a class are stored."""
    return f"{cls.__module__}:{cls.__qualname__}"


def shape_of(cls: type) -> Shape | None:
    """Return the shape of a class; None if we cannot read its fields."""
    for make in (_enum, _pydantic, _struct, _dataclass, _attrs, _named_tuple, _of_builtin):
        found = make(cls)
        if found is not None:
            return Shape(class_name(cls), cls, *found)
    return None


_TakeAndBuild = tuple[Callable[[Any], State], Callable[[State], Any]]


def _enum(cls: type) -> _TakeAndBuild | None:
    if not issubclass(cls, enum.Enum):
        return None
    if issubclass(cls, enum.Flag):  # a combination of flags has a value, but no name
        return (lambda member: {"value": member.value}), (lambda state: cls(state["value"]))

    def build(state: State) -> Any:
        try:
            return cls.__members__[state["name"]]
        except KeyError:
            raise FieldsChanged(f"it has no member {state['name']!r} any more") from None

    return (lambda member: {"name": member.name}), build


def _pydantic(cls: type) -> _TakeAndBuild | None:
    # A program with a model has imported pydantic; we must not import it for programs without one.
    base = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    if base is None or not issubclass(cls, base):
        return None
    parts = {
        "fields": "__dict__",
        "extra": "__pydantic_extra__",
        "fields_set": "__pydantic_fields_set__",
        "private": "__pydantic_private__",
    }
    known: Mapping[str, Any] = cls.model_fields  # type: ignore[attr-defined]  # it is a pydantic model
    cached = _cached_properties(cls)

    def take(model: Any) -> State:
        state = {part: getattr(model, attribute) for part, attribute in parts.items()}
        state["fields"] = {name: value for name, value in state["fields"].items() if name not in cached}
        return state

    def build(state: State) -> Any:
        fields = state["fields"]
        _refuse_unknown(fields, known)
        for name, info in known.items():
            if name not in fields:
                if info.is_required():
                    raise FieldsChanged(f"field {name!r} is missing and has no default")
                fields[name] = info.get_default(call_default_factory=True)
        model = base.__new__(cls)
        for part, attribute in parts.items():
            object.__setattr__(model, attribute, state[part])
        return model

    return take, build


def _struct(cls: type) -> _TakeAndBuild | None:
    if not issubclass(cls, msgspec.Struct):
        return None
    names: tuple[str, ...] = cls.__struct_fields__
    defaults = cls.__struct_defaults__
    begin = len(names) - len(defaults)
    required = [name for i, name in enumerate(names) if i < begin or defaults[i - begin] is msgspec.NODEFAULT]
    hidden = _hidden_state(cls, names)

    def take(struct: Any) -> State:
        hidden(struct)
        return {name: getattr(struct, name) for name in names}

    def build(state: State) -> Any:
        _refuse_unknown(state, names)
        missing = [name for name in required if name not in state]
        if missing:
            raise FieldsChanged(f"field {missing[0]!r} is missing and has no default")
        struct = cls(**state)
        for name, value in state.items():  # __post_init__ may have changed them
            msgspec.structs.force_setattr(struct, name, value)
        return struct

    return take, build


def _dataclass(cls: type) -> _TakeAndBuild | None:
    if not dataclasses.is_dataclass(cls):
        return None
    defaults: dict[str, Callable[[], Any] | None] = {}
    for field in dataclasses.fields(cls):
        if field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = field.default_factory
        elif field.default is not dataclasses.MISSING:
            defaults[field.name] = functools.partial(_identity, field.default)
        else:
            defaults[field.name] = None
    return _by_attributes(cls, defaults)


def _attrs(cls: type) -> _TakeAndBuild | None:
    attributes = getattr(cls, "__attrs_attrs__", None)
    if attributes is None:
        return None
    nothing = sys.modules["attr"].NOTHING
    defaults: dict[str, Callable[[], Any] | None] = {}
    for attribute in attributes:
        default = attribute.default
        if default is nothing:
            defaults[attribute.name] = None
        elif isinstance(default, sys.modules["attr"].Factory):
            # A factory that takes the instance cannot be used for a field that was added later.
            defaults[attribute.name] = None if default.takes_self else default.factory
        else:
            defaults[attribute.name] = functools.partial(_identity, default)
    return _by_attributes(cls, defaults)


def _by_attributes(cls: type, defaults: Mapping[str, Callable[[], Any] | None]) -> _TakeAndBuild:
    hidden = _hidden_state(cls, defaults)

    def take(instance: Any) -> State:
        hidden(instance)
        return {name: getattr(instance, name) for name in defaults if hasattr(instance, name)}

    def build(state: State) -> Any:
        _refuse_unknown(state, defaults)
        instance: Any = object.__new__(cls)
        for name, default in defaults.items():
            if name in state:
                value = state[name]
            elif default is not None:
                value = default()
            else:
                raise FieldsChanged(f"field {name!r} is missing and has no default")
            object.__setattr__(instance, name, value)
        return instance

    return take, build


def _named_tuple(cls: type) -> _TakeAndBuild | None:
    names: tuple[str, ...] | None = getattr(cls, "_fields", None)
    if names is None or not issubclass(cls, tuple):
        return None
    defaults: Mapping[str, Any] = getattr(cls, "_field_defaults", {})
    hidden = _hidden_state(cls, ())

    def take(row: Any) -> State:
        hidden(row)
        return dict(zip(names, row, strict=True))

    def build(state: State) -> Any:
        _refuse_unknown(state, names)
        missing = [name for name in names if name not in state and name not in defaults]
        if missing:
            raise FieldsChanged(f"field {missing[0]!r} is missing and has no default")
        return tuple.__new__(cls, [state[name] if name in state else defaults[name] for name in names])

    return take, build


# Read the content of a subclass of a builtin, bypassing overridden methods. OrderedDict comes before dict, because it
# has its own order.
_CONTENT: Final[dict[type, Callable[[Any], Any]]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    list: lambda value: list(list.__iter__(value)),
    set: lambda value: set(set.__iter__(value)),
    collections.OrderedDict: lambda value: dict(collections.OrderedDict.items(value)),
    dict: lambda value: dict(dict.items(value)),
}
_FILL: Final[dict[type, Callable[[Any, Any], None]]] = {
    list: list.extend,
    set: set.update,
    collections.OrderedDict: collections.OrderedDict.update,
    dict: dict.update,
}


def _of_builtin(cls: type) -> _TakeAndBuild | None:
    """Return the functions for a user's subclass of str, int, list or dict."""
    plain: Any = next((base for base in _CONTENT if issubclass(cls, base)), None)
    if plain in (None, cls) or issubclass(cls, collections.defaultdict):  # its default_factory is code
        return None
    content, fill = _CONTENT[plain], _FILL.get(plain)
    create: Any = plain.__new__
    hidden = _hidden_state(cls, ())

    def take(value: Any) -> State:
        hidden(value)
        return {"value": content(value)}

    def build(state: State) -> Any:
        if fill is None:
            return create(cls, state["value"])
        value = create(cls)
        fill(value, state["value"])
        return value

    return take, build


def _hidden_state(cls: type, fields: Iterable[str]) -> Callable[[Any], None]:
    """Return a check that an instance has no state outside its fields, which would be lost silently."""
    known = {*fields, *_cached_properties(cls)}
    slots = [slot for slot in _slots(cls) if slot not in known]

    def check(instance: Any) -> None:
        extra = [name for name in getattr(instance, "__dict__", ()) if name not in known]
        extra += [slot for slot in slots if hasattr(instance, slot)]
        if extra:
            raise HiddenState(f"{class_name(cls)} has {extra[0]!r} outside its declared fields")

    return check


def _slots(cls: type) -> list[str]:
    found = []
    for base in cls.__mro__:
        declared = base.__dict__.get("__slots__", ())
        for slot in (declared,) if isinstance(declared, str) else tuple(declared):
            if slot not in ("__dict__", "__weakref__"):
                mangled = slot.startswith("__") and not slot.endswith("__")
                found.append(f"_{base.__name__.lstrip('_')}{slot}" if mangled else slot)
    return found


def _cached_properties(cls: type) -> set[str]:
    """Return the names of cached properties. They are computed from the fields, and again when needed."""
    return {
        name
        for base in cls.__mro__
        for name, member in vars(base).items()
        if isinstance(member, functools.cached_property)
    }


def _refuse_unknown(state: Iterable[str], known: Iterable[str]) -> None:
    removed = [name for name in state if name not in known]
    if removed:
        raise FieldsChanged(f"it has no field {removed[0]!r} any more")


def _identity(value: Any) -> Any:
    return value
