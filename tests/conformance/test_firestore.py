"""The whole kit on Firestore's emulator."""

from __future__ import annotations

from tests.conformance.on_firestore import OnFirestore


class TestFirestore(OnFirestore):
    """In fake time, so that every check runs."""

    examples = 5
