"""The fingerprint of a payload: same key with another fingerprint is a mismatch, never a replay.

A fingerprint is one byte of encoder version and the SHA-256 of the arguments. The short hashes per argument exist only
to name what differs; they are salted, so that equal arguments of two records do not show.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from typing import Final, NewType

from .canonical import ENCODER_VERSION, canonical

Fingerprint = NewType("Fingerprint", bytes)

_VERSION: Final = bytes((ENCODER_VERSION,))
_PART: Final = b"onceward/part"
_PART_BYTES: Final = 4  # enough to tell two arguments apart, too few to prove a guess


def fingerprint(arguments: Mapping[str, object]) -> Fingerprint:
    """Hash of all arguments. Their order does not matter, their names do."""
    plain = arguments if type(arguments) is dict else dict(arguments)
    return Fingerprint(_VERSION + hashlib.sha256(canonical(plain, root="")).digest())


def of_key(key_id: bytes) -> Fingerprint:
    """Of a payload that the key holds whole. It differs from that of any payload with more in it."""
    return _VERSION + key_id  # type: ignore[return-value]  # to call a type that is none at runtime takes its time


def parts(arguments: Mapping[str, object], salt: bytes) -> dict[str, str]:
    """A short hash per argument. `salt` is the id of the record's key."""
    return {name: _part(name, value, salt) for name, value in arguments.items()}


def differing(stored: Mapping[str, str], current: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the arguments that differ, or that only one side has."""
    names = dict.fromkeys((*current, *stored))
    return tuple(name for name in names if stored.get(name) != current.get(name))


def comparable(one: bytes | None, other: bytes | None) -> bool:
    """Whether the two may be compared at all: both are there, and made by the same encoder version."""
    return one is not None and other is not None and one[:1] == other[:1] != b""


def _part(name: str, value: object, salt: bytes) -> str:
    own = hashlib.sha256(_PART + salt + _encoded_name(name))
    own.update(canonical(value, root=name))  # not joined: a large one would be copied for it
    return own.hexdigest()[: 2 * _PART_BYTES]


@functools.lru_cache(maxsize=1024, typed=True)
def _encoded_name(name: str) -> bytes:
    """The same few names come with every call."""
    return canonical(name)
