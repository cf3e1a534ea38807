"""Scope and key: whose work it is, and what makes two deliveries the same work.

The id, 32 bytes, is the identity; the text is for people only. Stores compare ids, so collations, NULs, slashes and
length limits of a database never decide whether two keys are one.
"""

from __future__ import annotations

import functools
import hashlib
import re
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from onceward.errors import InvalidKey, MissingKey

from .canonical import TEXT_STARTS, canonical, text_goes_on
from .readable import MAX_TEXT, cut, escape, readable

if TYPE_CHECKING:
    from hashlib import _Hash

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]

_DERIVED_BYTES: Final = 20  # 160 bits: no collision in practice, and 35 characters, which every remote accepts
_MARK: Final = 8  # hex digits of the id behind a text that was cut
_separators = re.compile("[%/@]")
_quoted = re.compile("%(25|2F|40)")
_SIZED: Final = (str, bytes, bytearray, memoryview, tuple, list, dict, set, frozenset)


class Scope(msgspec.Struct, frozen=True, dict=True):
    """Whose keys these are."""

    app: str
    operation: str
    tenant: str | None = None

    def __post_init__(self) -> None:
        for field in ("app", "operation", "tenant"):
            _check_part(field, getattr(self, field))

    @functools.cached_property
    def text(self) -> str:
        """`app/operation` or `app/operation@tenant`; separators inside a part are percent-encoded."""
        text = f"{_quote(self.app)}/{_quote(self.operation)}"
        if self.tenant is not None:
            text += f"@{_quote(self.tenant)}"
        return cut(text, self.hasher.hexdigest()[: 2 * _MARK])

    @functools.cached_property
    def hasher(self) -> _Hash:
        """A hash object already fed with the scope; to be copied, never updated."""
        parts = [part if part is None else str.__str__(part) for part in (self.app, self.operation, self.tenant)]
        return hashlib.sha256(b"onceward/key/1\0" + canonical(parts, root="scope"))

    @functools.cached_property
    def text_hasher(self) -> _Hash:
        """The same, fed with the begin of every text too."""
        hasher = self.hasher.copy()
        hasher.update(TEXT_STARTS)
        return hasher


class Key(msgspec.Struct, frozen=True, gc=False):
    """What makes two deliveries the same work, inside its scope."""

    scope: Scope
    text: str
    id: bytes


def make_key(scope: Scope, value: object, text: str | None = None, normalise: Form | None = None) -> Key:
    """The key for `value`: any canonical value that is not empty. `5` and `"5"` are two keys.

    `text` is what people see instead of the value. `normalise` makes one key of the several ways in which Unicode
    writes the same text; without it they are different keys.
    """
    if type(value) is str and value and not (text or normalise) and len(value) <= MAX_TEXT and value.isprintable():
        hasher = scope.text_hasher.copy()  # what most keys are: a text, shown as it is
        hasher.update(text_goes_on(value))
        return Key(scope, value, hasher.digest())
    if not value and is_empty(value):
        raise MissingKey(f"the key of {scope.text} is empty: {value!r}", hint="give a value that names the work")
    if normalise is not None:
        value = _normalised(value, normalise)
    hasher = scope.hasher.copy()
    hasher.update(canonical(value, "key"))
    identity = hasher.digest()
    text = escape(text) if text else readable(value)
    if not text:
        text = f"#{identity.hex()[: 2 * _MARK]}"
    elif len(text) > MAX_TEXT:
        text = cut(text, identity.hex()[:_MARK])
    return Key(scope, text, identity)


def is_empty(value: object) -> bool:
    """Whether a value names nothing. Zero and False are names like any other."""
    return value is None or (isinstance(value, _SIZED) and not value)


def derived_key(key_id: bytes, cycle: int, step: str) -> str:
    """An idempotency key for one step of the work: the same on every attempt, another per step and cycle."""
    if not step:
        raise MissingKey("a derived key needs the name of its step", hint='such as derived_key("charge")')
    from base64 import b32encode  # here, because few claims derive keys

    own = hashlib.sha256(b"onceward/derived/1\0" + canonical([key_id, cycle, step], root="step"))
    return "ow_" + b32encode(own.digest()[:_DERIVED_BYTES]).decode("ascii").lower()


def _normalised(value: object, form: Form) -> object:
    """Text, or the texts of a composite key."""
    from unicodedata import normalize  # its table is large, and few keys ask for it

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
        raise MissingKey(f"the {field} of a scope is empty", hint="None means that there is no tenant")
    if not part.isascii():
        canonical(part, root=field)  # refuses lone surrogates


def scope_of(text: str) -> Scope | None:
    """The scope that is written so; None where that cannot be told any more, because it was cut or escaped."""
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
