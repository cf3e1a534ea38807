"""The Firestore store: `firestore://project/collection?database=name`.

Read `store.py` first, then `table.py` (the state table applied to documents) and `documents.py` (how a record is
stored).
"""

from __future__ import annotations

from .address import parse
from .layout import Layout
from .store import FirestoreStore

__all__ = ["FirestoreStore", "Layout", "from_url"]


def from_url(url: str) -> FirestoreStore:
    """Return the store for a `url`, for `open_store`. The URL may also set the layout: see the Firestore guide."""
    return FirestoreStore(parse(url))
