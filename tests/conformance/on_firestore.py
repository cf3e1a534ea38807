"""Conformance classes on Firestore's emulator: how they open the store, read the database directly, and overwrite."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onceward.protocol.ports import Clock
from onceward.stores.clock import WallClock
from onceward.stores.firestore import FirestoreStore
from onceward.testing.conformance import StoreConformance, StoreFactory
from tests.firestore_backends import PROJECT, firestore_client
from tests.servers.firestore import shared

LONG = os.environ.get("ONCEWARD_HYPOTHESIS_PROFILE") == "soak"
SHOWN = ("scope", "key", "state", "owner", "attempt", "error_type", "error")


class Hooks(StoreFactory):
    """A collection for each directory. Children of a test find the server by the environment."""

    expires_data = False  # the emulator has no expiry policy, unlike Firestore
    max_result_size = FirestoreStore.max_result_bytes

    def open(self, directory: Path, clock: Clock) -> FirestoreStore:
        shared()
        own_time = isinstance(clock, WallClock)
        return FirestoreStore(f"firestore://{PROJECT}/{collection(directory)}", clock=None if own_time else clock)

    def raw(self, directory: Path, id: bytes) -> Mapping[str, object] | None:
        snapshot = firestore_client().collection(collection(directory)).document(id.hex()).get()
        data = snapshot.to_dict()
        if data is None:
            return None
        rest = dict(data.pop("onceward"))
        shown = {name: data[name] or "" for name in SHOWN if name in data}
        return {**rest, **shown, "attempt": data["attempt"], "lease_until": _micros(data["lease_until"])} | {
            name: _micros(rest[name]) for name in ("claimed_at", "renewed_at")
        }

    def writes(self, directory: Path) -> int:
        """Return a hash of the ids and versions of all documents in the collections of this directory."""
        seen = hashlib.sha256()
        for suffix in ("", "_audit"):
            for one in firestore_client().collection(collection(directory) + suffix).stream():
                seen.update(f"{one.id} {one.update_time}".encode())
        return int.from_bytes(seen.digest()[:8], "big")

    def overwrite(self, directory: Path, id: bytes, **fields: Any) -> None:
        assert list(fields) == ["min_reader"], f"{fields}: only the version can be overwritten"
        document = firestore_client().collection(collection(directory)).document(id.hex())
        document.update({"onceward.min_reader": fields["min_reader"]})


class OnFirestore(Hooks, StoreConformance):
    """The whole kit. The emulator is slow, so the largest checks are smaller than elsewhere."""

    examples = 100 if LONG else 3
    max_batch_size = 2_100 if LONG else 300


def collection(directory: Path) -> str:
    return f"{directory.parent.parent.name}-{directory.parent.name}-{directory.name}"[-200:]


def _micros(value: Any) -> int | None:
    if value is None:
        return None
    return int(value.timestamp()) * 1_000_000 + int(value.microsecond)
