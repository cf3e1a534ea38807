"""Choose document ids: the key itself if it is a content hash, otherwise the hash of the key.

The id must be computable from the claim alone, and be the same for every claim of the key. So a content hash is used
only if scope and key, as the claim has them, lead to exactly the claim's id. It is never used with a tenant, because
two tenants may have the same content.
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
MAX_ID_BYTES: Final = 1500  # bytes of an id
_RESERVED: Final = re.compile(r"__.*__")
_MARK_HASH: Final = 16  # bytes at the end of a mark, see protocol.latest.mark_of
_MARK_NAME: Final = re.compile(r"[0-9a-f]{32}_.*", re.DOTALL)


def hash_name(id: bytes) -> str:
    return id.hex()


def name_of(id: bytes, scope: str, key: str) -> str:
    """Return the document id of a record."""
    if _CONTENT.fullmatch(key) and has_id(id, scope, key):
        return key
    return hash_name(id)


def entity_name(id: bytes, scope: str, entity: str) -> str:
    """Return the document id of an entity's state if documents are named after entities.

    An entity name that looks like a hash is hashed, because it might be the document id of another entity.
    """
    if is_valid_id(entity) and not _HASH.fullmatch(entity) and has_id(id, scope, entity):
        return entity
    return hash_name(id)


def mark_name(mark: bytes) -> str:
    """Return the document id of a mark: its hash, then a readable text.

    The hash comes first because ids that grow with time would all be written to one part of the index.
    """
    head, digest = mark[:-_MARK_HASH], mark[-_MARK_HASH:]
    try:
        text = head.decode()
    except UnicodeDecodeError:  # cut in the middle of a character
        text = ""
    return f"{digest.hex()}_{text if is_valid_id(text) else head.hex()}"


def plain_mark_name(mark: bytes, text: str) -> str:
    """Return the document id of a mark if documents are named after messages and events.

    A text that looks like a hashed name is hashed, because it might be the document id of another mark.
    """
    return text if is_valid_id(text) and not _MARK_NAME.fullmatch(text) else mark_name(mark)


def is_valid_id(name: str) -> bool:
    """Return whether Firestore accepts this as a document id."""
    if not name or "/" in name or name in {".", ".."} or _RESERVED.fullmatch(name):
        return False
    return name.isprintable() and len(name.encode()) <= MAX_ID_BYTES


@lru_cache(maxsize=4096)
def has_id(id: bytes, scope: str, key: str) -> bool:
    """Return whether this key, as text in this scope, has this id."""
    parts = _PLAIN_SCOPE.fullmatch(scope)
    if parts is None:
        return False
    try:
        return make_key(Scope(parts[1], parts[2]), key).id == id
    except OncewardError:
        return False
