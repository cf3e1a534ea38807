"""Rows of earlier imports: an unchanged row is skipped, and a changed row replaces its earlier version.

A row is identified by its key (the columns that identify it) and the name of its file. One user may have several rows
there, so each key has a list of fingerprints, one for each of its rows. A row whose fingerprint is in the list is
unchanged. Any other row replaces the first entry that this import has not confirmed yet, or is appended. So the order
of rows does not matter, and an edited row is never stored beside its earlier version.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct

_encode = msgspec.json.Encoder(order="deterministic").encode

FINGERPRINT_BYTES: Final = 12
"""This is enough: a fingerprint is only compared with the few of one key."""

MAX_KEY_LENGTH: Final = 150
SEPARATOR: Final = ","
EMPTY: Final = "-"
"""Instead of the fingerprint of a rejected row. No row has this fingerprint."""


class KeyRows(Struct):
    """The rows of one key. `confirmed` has a bit for each row that this import has read."""

    fingerprints: list[str]
    confirmed: int = 0
    is_changed: bool = False

    @property
    def is_unchanged(self) -> bool:
        """Whether the key has one row, and this import has read it unchanged."""
        return not self.is_changed and self.confirmed == 1 and len(self.fingerprints) == 1

    def assign(self, fingerprint: str) -> int | None:
        """Return the index of the entry that this row replaces or appends; None if the row is unchanged."""
        if fingerprint in self.fingerprints:
            self.confirmed |= 1 << self.fingerprints.index(fingerprint)
            return None
        index = next((n for n in range(len(self.fingerprints)) if not self.confirmed >> n & 1), None)
        if index is None:
            index = len(self.fingerprints)
            self.fingerprints.append(fingerprint)
        else:
            self.fingerprints[index] = fingerprint
        self.confirmed |= 1 << index
        self.is_changed = True
        return index

    def clear(self, index: int) -> None:
        """Remove the fingerprint of a rejected row, so that the next import tries the row again."""
        self.fingerprints[index] = EMPTY


def fingerprint(fields: Mapping[str, str]) -> str:
    """Return the fingerprint of a row's fields. Renamed or reordered columns do not change it."""
    return blake2b(_encode(fields), digest_size=FINGERPRINT_BYTES).hexdigest()


def key_of(parts: tuple[str, ...]) -> str:
    """Return the key of a row, as text that every database can index."""
    if len(parts) == 1:
        plain = parts[0].strip()
        if len(plain) <= MAX_KEY_LENGTH and "#" not in plain and not plain.startswith("="):  # the index follows a #
            return plain
    return "#" + blake2b(_encode([part.strip() for part in parts]), digest_size=16).hexdigest()


def record_id(name: str, key: str, index: int) -> str:
    """Return the id of the row at its source. A later version with the same id replaces it."""
    return f"{name}:{key}" if index == 0 else f"{name}:{key}#{index + 1}"
