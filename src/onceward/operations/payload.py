"""What the fingerprint of a call covers, as `fingerprint=` declares it.

    "all"                                all arguments (the default)
    ["order.total", "cents"]             these arguments, or values inside them
    Payload(exclude=["meta.sent_at"])    all arguments except delivery metadata
    "{order.id}:{cents}", a callable …   everything else that `key=` takes

`self` and `cls` are not part of it. Neither is an argument that the key's template uses as a whole: it cannot differ
under one key, and `7` and `"7"` are the same key.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from onceward.errors import ConfigurationError, MissingKey, OncewardWarning
from onceward.keys.exclude import parse_path
from onceward.keys.sources import Content, JsonKey, Payload, Source, source_for
from onceward.keys.template import ABSENT, FirstOf, Template, value_inside

from .binding import Binding

if TYPE_CHECKING:
    from onceward.protocol.policy import Policy

COMPUTED: Final = "fingerprint"
"""The name, in mismatches, of a payload that a template or a callable computes."""

Arguments = Mapping[str, Any]


class ComparedPayload:
    """Selects the payload of a call: a dict whose parts are hashed and, if they differ, named."""

    def __init__(self, policy: Policy, key_source: Source, binding: Binding, *, explicit: bool) -> None:
        declared = policy.fingerprint
        self.is_used = declared != "none" and (explicit or not isinstance(key_source, Payload | Content | JsonKey))
        """Without it, calls have no fingerprint. A key that is derived from the content needs none."""
        self._key_source = key_source
        self._receiver = binding.receiver
        self._paths: tuple[str, ...] = ()
        self._checked_paths: set[str] = set()
        self.source: Source | None = None
        if isinstance(declared, tuple) and not any("{" in path for path in declared):
            self._paths = declared
        elif declared not in ("all", "none"):
            self.source = source_for(list(declared) if isinstance(declared, tuple) else declared)
        self._check(binding)
        self.is_covered = self._is_covered(binding)
        """Whether the key determines the whole payload, so that a fingerprint would add nothing."""

    def __call__(self, arguments: Arguments) -> dict[str, Any]:
        """Return the payload of a call with these arguments."""
        own = {name: value for name, value in arguments.items() if name != self._receiver}
        if self.source is None:
            chosen = {path: self._value_at(path, own) for path in self._paths} if self._paths else own
        elif isinstance(self.source, Payload):
            chosen = self.source.select(own)
        else:
            return {COMPUTED: _computed(self.source, arguments)}
        key_source = self._key_source
        if isinstance(key_source, FirstOf):
            return key_source.reduce(chosen, arguments)
        return key_source.reduce(chosen) if isinstance(key_source, Template) else chosen

    def argument_names(self, binding: Binding) -> tuple[str, ...]:
        """Return the arguments that are covered because no declaration selects them: a new one changes the payload."""
        if not self.is_used or self.is_covered or self.source is not None or self._paths:
            return ()
        own = dict.fromkeys(name for name in binding.names if name != self._receiver)
        source = self._key_source
        if isinstance(source, FirstOf) and len(source.templates) == 1:
            source = source.templates[0]
        return tuple(source.reduce(own)) if isinstance(source, Template) else tuple(own)

    def _value_at(self, path: str, arguments: Arguments) -> Any:
        found: Any = arguments.get(path.partition(".")[0])  # None: an extra keyword that this call does not pass
        for step in path.split(".")[1:]:
            found = value_inside(found, step)
            if found is ABSENT:
                self._warn_if_first(path)
                return None
        return found

    def _warn_if_first(self, path: str) -> None:
        if path not in self._checked_paths:
            self._checked_paths.add(path)
            warnings.warn(
                f"the path {path!r} of fingerprint= does not occur in the payload; is it spelled correctly?",
                OncewardWarning,
                stacklevel=2,
            )

    def _is_covered(self, binding: Binding) -> bool:
        names = self._paths or [name for name in binding.names if name != binding.receiver]
        covers = isinstance(self._key_source, Template | FirstOf) and self._key_source.covers(names)
        return covers and self.source is None and not binding.has_var_keywords

    def _check(self, binding: Binding) -> None:
        """Reject what no call has."""
        if self.source is not None:
            names = binding.names
            if isinstance(self.source, Payload):
                names = tuple(name for name in names if name != binding.receiver)
            self.source.check(names, has_var_keywords=binding.has_var_keywords)
        for path in self._paths:
            root, *steps = parse_path(path)
            if root not in binding.names and not binding.has_var_keywords:
                raise ConfigurationError(
                    f"fingerprint names {root!r}, which is not a parameter",
                    hint=f"the parameters are: {', '.join(binding.names) or 'none'}",
                )
            if "*" in steps:
                raise ConfigurationError(
                    f"fingerprint names {path!r}, and * selects nothing there",
                    hint="leave parts out instead: fingerprint=Payload(exclude=[…])",
                )


def fingerprint_text(fingerprint: str | tuple[str, ...] | Callable[..., Any]) -> str:
    """Return the text of a `fingerprint=` setting, by which two deployments are compared."""
    if isinstance(fingerprint, str):
        return fingerprint
    if isinstance(fingerprint, tuple):
        is_template = any("{" in path for path in fingerprint)
        return ", ".join(fingerprint if is_template else sorted(fingerprint))  # the order of paths does not matter
    return repr(source_for(fingerprint))


def _computed(source: Source, arguments: Arguments) -> Any:
    try:
        return source(arguments)[0]
    except MissingKey:  # in a payload, None and empty values are values
        return None
