"""The id of a document: the content hash that a key is, or else the hash of the key.

It must follow from the claim alone, and be the same for every claim of the key. So a content hash is taken as it stands
only if scope and key, as the claim spells them, lead to the very id that the claim has; and never for a tenant, whose
neighbour may hold the same content.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from onceward.errors import OncewardError
from onceward.keys.key import Scope, make_key

_CONTENT: Final = re.compile(r"(?:json:)?sha256:[0-9a-f]{64}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_PLAIN_SCOPE: Final = re.compile(r"([^%/@…]+)/([^%/@…]+)")
LONGEST: Final = 1500  # bytes of an id
_RESERVED: Final = re.compile(r"__.*__")
_MARK_HASH: Final = 16  # bytes at the end of a mark, see protocol.latest.mark_of


def hashed(id: bytes) -> str:
    return id.hex()


def name_of(id: bytes, scope: str, key: str) -> str:
    """The document of this record."""
    if _CONTENT.fullmatch(key) and is_own(id, scope, key):
        return key
    return hashed(id)


def entity_name(id: bytes, scope: str, entity: str) -> str:
    """The document of this entity, where entities give their names to documents.

    One that looks like a hash might be the hash of another entity, whose document is called so.
    """
    if is_legal(entity) and not _HASH.fullmatch(entity) and is_own(id, scope, entity):
        return entity
    return hashed(id)


def mark_name(mark: bytes) -> str:
    """Hash first: ids that rise with time would all be written in one place of the index. Its text is for people."""
    head, own = mark[:-_MARK_HASH], mark[-_MARK_HASH:]
    try:
        words = head.decode()
    except UnicodeDecodeError:  # cut in the middle of a character
        words = ""
    return f"{own.hex()}_{words if is_legal(words) else head.hex()}"


def is_legal(name: str) -> bool:
    """What Firestore accepts as an id."""
    if not name or "/" in name or name in {".", ".."} or _RESERVED.fullmatch(name):
        return False
    return name.isprintable() and len(name.encode()) <= LONGEST


@lru_cache(maxsize=4096)
def is_own(id: bytes, scope: str, key: str) -> bool:
    """Whether this key, as a text in this scope, is the one with this id."""
    parts = _PLAIN_SCOPE.fullmatch(scope)
    if parts is None:
        return False
    try:
        return make_key(Scope(parts[1], parts[2]), key).id == id
    except OncewardError:
        return False
