"""The Firestore store: `firestore://project/collection?database=name`."""

from __future__ import annotations

from .address import parse
from .joined import FirestoreJoined
from .layout import Layout
from .store import FirestoreStore

__all__ = ["FirestoreJoined", "FirestoreStore", "Layout", "from_url"]


def from_url(url: str) -> FirestoreStore:
    """For `open_store`. How documents look is part of the URL, too: see docs/howto/firestore.md."""
    return FirestoreStore(parse(url))
