"""Scope and key: what makes two deliveries the same work.

The id, 32 bytes, is the identity; the text is for people only. Stores compare ids, so collations, NULs, slashes and
length limits of a database never decide whether two keys are equal.
"""

from __future__ import annotations

import functools
import hashlib
import re
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from onceward.errors import InvalidKey, MissingKey

from .canonical import TEXT_PREFIX, canonical, pack_text
from .readable import MAX_TEXT, escape, readable, truncate

if TYPE_CHECKING:
    from hashlib import _Hash

NormalForm = Literal["NFC", "NFD", "NFKC", "NFKD"]

_DERIVED_BYTES: Final = 20  # 160 bits: no collisions in practice, and 35 characters, which every remote API accepts
_SUFFIX: Final = 8  # hex digits of the id after a truncated text
_separators = re.compile(r"[%/@\\]")
_quoted = re.compile("%(25|2F|40|5C)")
_SIZED: Final = (str, bytes, bytearray, memoryview, tuple, list, dict, set, frozenset)


class Scope(msgspec.Struct, frozen=True, dict=True):
    """The namespace of keys: the `app`, the `operation` and, optionally, the `tenant`."""

    app: str
    operation: str
    tenant: str | None = None

    def __post_init__(self) -> None:
        for field in ("app", "operation", "tenant"):
            _check_part(field, getattr(self, field))

    @functools.cached_property
    def text(self) -> str:
        r"""`app/operation` or `app/operation@tenant`; separators and backslashes inside a part are percent-encoded.

        So a control character, which is shown as `\n`, cannot be mistaken for a backslash and a letter.
        """
        text = f"{_quote(self.app)}/{_quote(self.operation)}"
        if self.tenant is not None:
            text += f"@{_quote(self.tenant)}"
        return truncate(text, self.hasher.hexdigest()[: 2 * _SUFFIX])

    @functools.cached_property
    def hasher(self) -> _Hash:
        """A hash object that has consumed the scope. Copy it; never update it."""
        parts = [part if part is None else str.__str__(part) for part in (self.app, self.operation, self.tenant)]
        return hashlib.sha256(b"onceward/key/1\0" + canonical(parts, root="scope"))

    @functools.cached_property
    def text_hasher(self) -> _Hash:
        """A copy of `hasher` that has also consumed the prefix of every text."""
        hasher = self.hasher.copy()
        hasher.update(TEXT_PREFIX)
        return hasher


class Key(msgspec.Struct, frozen=True, gc=False):
    """What makes two deliveries the same work, inside its `scope`.

    `text` is the readable form, and `id` a hash of the whole key.
    """

    scope: Scope
    text: str
    id: bytes


def make_key(scope: Scope, value: object, text: str | None = None, normalise: NormalForm | None = None) -> Key:
    """Return the key for `value`: any canonical value that is not empty. `5` and `"5"` are two keys.

    `text` is shown to people instead of the value. With `normalise`, the different Unicode spellings of a text are one
    key; without it they are different keys.
    """
    if type(value) is str and value and not (text or normalise) and len(value) <= MAX_TEXT and value.isprintable():
        hasher = scope.text_hasher.copy()  # the most common key: a text that is shown as it is
        hasher.update(pack_text(value))
        return Key(scope, value, hasher.digest())
    if not value and is_empty(value):
        raise MissingKey(f"the key of {scope.text} is empty: {value!r}", hint="pass a value that identifies the work")
    if normalise is not None:
        value = _normalised(value, normalise)
    hasher = scope.hasher.copy()
    hasher.update(canonical(value, "key"))
    identity = hasher.digest()
    text = escape(text) if text else readable(value)
    if not text:
        text = f"#{identity.hex()[: 2 * _SUFFIX]}"
    elif len(text) > MAX_TEXT:
        text = truncate(text, identity.hex()[:_SUFFIX])
    return Key(scope, text, identity)


def is_empty(value: object) -> bool:
    """Return whether a value cannot identify work. Zero and False can."""
    return value is None or (isinstance(value, _SIZED) and not value)


def derived_key(key_id: bytes, cycle: int, step: str) -> str:
    """Return an idempotency key for one step of the work: equal on every attempt, different per step and cycle."""
    if not step:
        raise MissingKey("a derived key needs the name of its step", hint='such as derived_key("charge")')
    from base64 import b32encode  # imported here, because few claims derive keys

    hashed = hashlib.sha256(b"onceward/derived/1\0" + canonical([key_id, cycle, step], root="step"))
    return "ow_" + b32encode(hashed.digest()[:_DERIVED_BYTES]).decode("ascii").lower()


def _normalised(value: object, form: NormalForm) -> object:
    """Normalise a text, or the texts of a composite key."""
    from unicodedata import normalize  # imported here: its table is large, and few keys need it

    if type(value) is str:
        return normalize(form, value)
    if type(value) is tuple or type(value) is list:
        return type(value)(normalize(form, part) if type(part) is str else part for part in value)
    return value


def _check_part(field: str, part: object) -> None:
    if part is None and field == "tenant":
        return
    if not isinstance(part, str):
        raise InvalidKey(f"the {field} of a scope is {type(part).__name__}, not str", hint=f"pass str({field})")
    if not part:
        raise MissingKey(f"the {field} of a scope is empty", hint="pass None if there is no tenant")
    if not part.isascii():
        canonical(part, root=field)  # raises for lone surrogates


def parse_scope(text: str) -> Scope | None:
    """Parse a scope from its text; None if that is impossible, because the text was truncated or escaped."""
    app, slash, rest = text.partition("/")
    operation, at, tenant = rest.partition("@")
    if not slash:
        return None
    try:
        scope = Scope(_unquote(app), _unquote(operation), _unquote(tenant) if at else None)
    except (InvalidKey, MissingKey):
        return None
    return scope if scope.text == text else None


def _unquote(part: str) -> str:
    return _quoted.sub(lambda found: chr(int(found[1], 16)), part)


def _quote(part: str) -> str:
    return escape(_separators.sub(lambda found: f"%{ord(found[0]):02X}", str.__str__(part)))
