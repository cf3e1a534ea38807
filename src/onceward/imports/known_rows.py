"""Rows that are known from an earlier import: what is unchanged is skipped, what has changed replaces itself.

A row is known by its key (the columns that name it) under the name of its file. One user may have several rows there,
so a key has places, each with the fingerprint of the row that stands in it. A row whose fingerprint stands in any place
is unchanged. Another one takes the first place that no row of this import has confirmed, or a new one. So the order of
rows does not matter, and an edited row never stands beside its old self.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct

_encode = msgspec.json.Encoder(order="deterministic").encode

FINGERPRINT: Final = 12
"""Bytes: fingerprints are only compared with the few of one key."""

LONGEST_KEY: Final = 150
SEPARATOR: Final = ","
VACANT: Final = "-"
"""In place of a fingerprint; no row has it."""


class Places(Struct):
    """The rows of one key. `confirmed` is a bit for each place that this import has met."""

    fingerprints: list[str]
    confirmed: int = 0
    is_changed: bool = False

    @property
    def is_unchanged(self) -> bool:
        """One row, and it is what it was."""
        return not self.is_changed and self.confirmed == 1 and len(self.fingerprints) == 1

    def take(self, fingerprint: str) -> int | None:
        """The place that this row changes; None: it stands there already."""
        if fingerprint in self.fingerprints:
            self.confirmed |= 1 << self.fingerprints.index(fingerprint)
            return None
        place = next((n for n in range(len(self.fingerprints)) if not self.confirmed >> n & 1), None)
        if place is None:
            place = len(self.fingerprints)
            self.fingerprints.append(fingerprint)
        else:
            self.fingerprints[place] = fingerprint
        self.confirmed |= 1 << place
        self.is_changed = True
        return place

    def vacate(self, place: int) -> None:
        """The row was rejected: when it comes again, it is tried again."""
        self.fingerprints[place] = VACANT


def fingerprint(fields: Mapping[str, str]) -> str:
    """Of what a row says, by its fields: renamed or reordered columns change nothing."""
    return blake2b(_encode(fields), digest_size=FINGERPRINT).hexdigest()


def key_of(parts: tuple[str, ...]) -> str:
    """What names a row, as text that every database takes into an index."""
    if len(parts) == 1:
        plain = parts[0].strip()
        if len(plain) <= LONGEST_KEY and "#" not in plain and not plain.startswith("="):  # a place is told behind a #
            return plain
    return "#" + blake2b(_encode([part.strip() for part in parts]), digest_size=16).hexdigest()


def record_id(name: str, key: str, place: int) -> str:
    """The source's own name for the row: under it, it replaces itself."""
    return f"{name}:{key}" if place == 0 else f"{name}:{key}#{place + 1}"
