"""Key sources: compute the key of a call, and its readable text, from the bound arguments.

    "email:{prospect_id}"             Template    literal text and fields
    ["mail:{message_id}", "…"]        FirstOf     the first template whose fields all have values
    lambda order: order.id            Call        any callable over the same arguments
    Payload(exclude=["meta.sent_at"]) Payload     all arguments except delivery metadata
    Content("path")                   Content     the hash of the file's content
    JsonKey("body")                   JsonKey     RFC 8785, the same in every language

Arguments are a dict from parameter to value, in the order of the signature. Arguments collected by `**kwargs` are
entries under their own names.
"""

from __future__ import annotations

import hashlib
import inspect
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

from onceward.errors import ConfigurationError, InvalidKey, MissingKey, OncewardWarning

from .content import content_key, is_consumed_by_hashing
from .exclude import parse_path, remove_entries
from .key import is_empty
from .readable import readable
from .shape import Instance
from .template import FirstOf, Template


@runtime_checkable
class Source(Protocol):
    """Turns arguments into (key value, readable text). If the text is empty, the key shows its hash."""

    def check(self, names: Collection[str], *, has_var_keywords: bool) -> None:
        """Raise `ConfigurationError` if no call with these parameters can have a key."""

    def __call__(self, arguments: Mapping[str, object]) -> tuple[object, str]:
        """Return key value and text. Raise `MissingKey` if this call has no key."""
        ...


class Call:
    """A key computed by a callable.

    It gets the arguments that its parameters name, by name. If it has other parameter names, it is called like the
    function itself: with all arguments, by position.
    """

    def __init__(self, fn: Callable[..., object]) -> None:
        if inspect.iscoroutinefunction(fn):
            raise ConfigurationError(f"the key function {_name(fn)} is async", hint="make it a plain function")
        self.fn = fn
        try:
            self._signature: inspect.Signature | None = inspect.signature(fn)
        except (TypeError, ValueError):  # some C callables have none
            self._signature = None

    def __repr__(self) -> str:
        return f"Call({_name(self.fn)})"

    def check(self, names: Collection[str], *, has_var_keywords: bool) -> None:
        """Reject a callable that can be called in neither way."""
        if self._signature is None or self._wanted(names) is not None:
            return
        try:
            self._signature.bind(*names)
        except TypeError as error:
            if has_var_keywords:
                return  # extra keywords may have the names that it needs
            raise ConfigurationError(
                f"the key function {_name(self.fn)} does not fit: {error}",
                hint=f"name some of the parameters: {', '.join(names) or 'none'}",
            ) from None

    def __call__(self, arguments: Mapping[str, object]) -> tuple[object, str]:
        wanted = self._wanted(arguments)
        if wanted is None:
            value = self.fn(*arguments.values())
        else:
            value = self.fn(**{name: arguments[name] for name in wanted})
        if is_empty(value):
            raise MissingKey(
                f"the key function {_name(self.fn)} returned {value!r}", hint="return a value that identifies the work"
            )
        return value, readable(value)

    def _wanted(self, names: Collection[str]) -> list[str] | None:
        """Return the arguments to pass by name; None if the callable has other parameter names."""
        if self._signature is None:
            return None
        wanted: list[str] = []
        for parameter in self._signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                return list(names)
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
                return None
            if parameter.name in names:
                wanted.append(parameter.name)
            elif parameter.default is parameter.empty:
                return None
        return wanted or None


class Payload:
    """All arguments, or the named ones, without the excluded paths.

    `arguments` are the names of parameters; None means all. `exclude` are paths such as `meta.sent_at`, to leave out
    what differs between deliveries. A path starts with the name of an argument; if there is only one argument, it may
    also start inside it. A path that the payload does not contain is probably a typo, and causes one warning.
    """

    def __init__(self, arguments: Sequence[str] | None = None, exclude: Sequence[str] = ()) -> None:
        if isinstance(arguments, str) or isinstance(exclude, str):
            raise ConfigurationError("Payload takes lists of names, not one string", hint='write exclude=["meta.ts"]')
        self.arguments = None if arguments is None else tuple(arguments)
        self.exclude = tuple(exclude)
        self._paths = {path: parse_path(path) for path in self.exclude}
        self._checked_paths: set[str] = set()  # paths that occurred or were warned about

    def __repr__(self) -> str:
        return f"Payload({self.arguments!r}, exclude={self.exclude!r})"

    def check(self, names: Collection[str], *, has_var_keywords: bool) -> None:
        """Reject unknown arguments and an exclusion that leaves nothing."""
        chosen = tuple(names) if self.arguments is None else self.arguments
        unknown = [name for name in chosen if name not in names]
        if len(chosen) != 1:
            unknown += [steps[0] for steps in self._paths.values() if steps[0] not in (*chosen, "*")]
        if unknown and not has_var_keywords:
            raise ConfigurationError(
                f"{unknown[0]!r} is not a parameter", hint=f"the parameters are: {', '.join(names) or 'none'}"
            )
        gone = {steps[0] for steps in self._paths.values() if len(steps) == 1}
        if self._paths and ("*" in gone or (chosen and gone.issuperset(chosen))):
            raise ConfigurationError("the whole payload is excluded", hint="keep something for the key")

    def __call__(self, arguments: Mapping[str, object]) -> tuple[object, str]:
        if not self._chosen(arguments):
            return ((),), "()"  # a function without parameters has one constant key
        rest = self.select(arguments)
        if self._paths and not _has_content(rest):
            raise MissingKey("nothing of the payload is left after the exclusions", hint="exclude less")
        return rest, ""

    def select(self, arguments: Mapping[str, object]) -> dict[str, Any]:
        """Return the chosen arguments without the excluded paths."""
        rest: dict[Any, object] = self._chosen(arguments)
        names = tuple(rest)
        for path, steps in self._paths.items():
            rooted = steps if steps[0] in names or steps[0] == "*" or len(names) != 1 else (*names, *steps)
            rest, occurred = remove_entries(rest, rooted)
            self._warn_if_absent(path, occurred=occurred)
        return rest

    def _chosen(self, arguments: Mapping[str, object]) -> dict[str, object]:
        if self.arguments is None:
            return dict(arguments)
        missing = [name for name in self.arguments if name not in arguments]
        if missing:
            raise MissingKey(f"the argument {missing[0]!r} of the key is missing", hint="pass it")
        return {name: arguments[name] for name in self.arguments}

    def _warn_if_absent(self, path: str, *, occurred: bool) -> None:
        if path in self._checked_paths:
            return
        self._checked_paths.add(path)
        if not occurred:
            warnings.warn(
                f"the excluded path {path!r} does not occur in the payload; is it spelled correctly?",
                OncewardWarning,
                stacklevel=3,
            )


class _OneArgument:
    """A source that uses one argument only."""

    def __init__(self, argument: str) -> None:
        self.argument = argument

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.argument!r})"

    def check(self, names: Collection[str], *, has_var_keywords: bool) -> None:
        """Reject an argument that does not exist."""
        if self.argument not in names and not has_var_keywords:
            raise ConfigurationError(
                f"{self.argument!r} is not a parameter", hint=f"the parameters are: {', '.join(names) or 'none'}"
            )

    def _value(self, arguments: Mapping[str, object]) -> object:
        value = arguments.get(self.argument)
        if value is None:
            raise MissingKey(f"the argument {self.argument!r} of the key is missing", hint="pass it")
        return value


class Content(_OneArgument):
    """The content of one `argument`: bytes, a path or a seekable stream. A renamed file has the same key."""

    def __call__(self, arguments: Mapping[str, object]) -> tuple[object, str]:
        value = self._value(arguments)
        if is_consumed_by_hashing(value):
            raise InvalidKey(
                f"the argument {self.argument!r} is not a seekable stream: hashing would consume it",
                hint="read its bytes first and pass those, or save it and pass the Path",
            )
        key = content_key(cast("bytes", value))  # content_key itself rejects other types
        return key, key


class JsonKey(_OneArgument):
    """`json:sha256:<hex>` of one `argument` by RFC 8785. Bytes are parsed strictly as JSON."""

    def __call__(self, arguments: Mapping[str, object]) -> tuple[object, str]:
        from .jcs import parse_json_strict, rfc8785  # imported here, because most keys are not JSON

        value = self._value(arguments)
        if isinstance(value, bytes | bytearray):
            value = parse_json_strict(bytes(value))
        key = f"json:sha256:{hashlib.sha256(rfc8785(value)).hexdigest()}"
        return key, key


def source_for(key: str | list[str] | Callable[..., Any] | Source | None) -> Source:
    """Return the source for a `key=` setting. None means all arguments."""
    if key is None:
        return Payload()
    if isinstance(key, Source):
        return key
    if isinstance(key, str):
        return Template(key)
    if isinstance(key, list | tuple):
        return FirstOf(key)
    if callable(key):
        return Call(key)
    raise ConfigurationError(
        f"key= cannot be {type(key).__name__}", hint="pass a template, a list of them, a callable or a key source"
    )


def _has_content(value: object) -> bool:
    """Return whether any argument still has content."""
    arguments = value.values() if isinstance(value, dict) else ()
    held = (each.content if isinstance(each, Instance) else each for each in arguments)
    return not all(isinstance(each, dict | list | tuple) and not each for each in held)


def _name(fn: Callable[..., object]) -> str:
    return getattr(fn, "__qualname__", type(fn).__name__)
