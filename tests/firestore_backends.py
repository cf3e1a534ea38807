"""Stores on Firestore's emulator whose documents have the layouts of missions A2 and E2."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from google.auth.credentials import AnonymousCredentials
from google.cloud import firestore

from onceward.protocol.ports import Clock
from onceward.stores.firestore import FirestoreStore, Layout
from onceward.stores.firestore.cache import FirestoreCache
from tests.servers.firestore import shared

PROJECT = "onceward-test"

LOCKS = Layout(
    fields={
        "key": "hash",
        "state": "status",
        "created_at": "created_at",
        "updated_at": "updated_at",
        "lease_until": "lock_expires_at",
        "error": "error_message",
    },
    notes=("gcs_source_path", "gcs_output_path"),
)
"""Mission A2."""

SERVICES = Layout(
    marks={"trace": "messageId", "created_at": "createdAt"}, states={}, expiry="expireAt", show_values=True
)
"""Mission E2."""

SERVICES_URL = (
    "?database=(default)&mark_fields=trace:messageId,created_at:createdAt&state_fields=&expiry=expireAt&values=shown"
    "&ids=entity"
)


def documents(folder: Path, *, clock: Clock | None = None) -> FirestoreStore:
    """Return the store of the document locks, in a collection named after this folder."""
    shared()
    return FirestoreStore(f"firestore://{PROJECT}/{named(folder)}", layout=LOCKS, clock=clock)


def cache_of(store: Any) -> FirestoreCache:
    """Return the cache of a store: its last answers, and its estimate of the server's time."""
    found: FirestoreCache = store._cache
    return found


def named(folder: Path, what: str = "processed_documents") -> str:
    """Return the name of a collection for this test only."""
    return f"{what}-{folder.parent.name}-{folder.name}"[-200:]


@cache
def firestore_client() -> firestore.Client:
    """Return an official client, connected directly to the emulator even if a test uses a proxy."""
    found = firestore.Client(project=PROJECT, credentials=AnonymousCredentials())  # type: ignore[no-untyped-call]
    found._emulator_host = shared()
    return found


def document(collection: str, name: str) -> dict[str, Any] | None:
    """Return the document as the console shows it."""
    found: dict[str, Any] | None = firestore_client().collection(collection).document(name).get().to_dict()
    return found
