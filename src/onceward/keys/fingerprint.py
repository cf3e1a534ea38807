"""Fingerprints of payloads: the same key with another fingerprint is a mismatch, never a replay.

A fingerprint is one byte of encoder version and the first 16 bytes of the SHA-256 of the arguments: it is compared only
with that of the same key, and every record stores one. The short hashes per argument exist only to name what differs;
they are salted, so that equal arguments of two records cannot be recognised.

A reader of the store can hash guesses and so discover short secrets, such as a PIN. With a secret key, all of
these hashes are HMACs, and a guess cannot be tested without the key.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from typing import Final, NewType

from onceward.errors import ConfigurationError

from .canonical import ENCODER_VERSION, canonical

Fingerprint = NewType("Fingerprint", bytes)

_VERSION: Final = bytes((ENCODER_VERSION,))
FINGERPRINT_BYTES: Final = 16
MIN_KEY_BYTES: Final = 16
_PART: Final = b"onceward/part"
_KEY_ID: Final = b"onceward/fingerprint-key/1"
_KEY_ID_BYTES: Final = 2  # enough to notice a change, too few to confirm a guessed key
_PART_BYTES: Final = 4  # enough to distinguish two arguments, too few to confirm a guessed value


def fingerprint(arguments: Mapping[str, object], secret: bytes = b"") -> Fingerprint:
    """Return the hash of all arguments, or with `secret` their HMAC. Their order does not matter, their names do."""
    plain = arguments if type(arguments) is dict else dict(arguments)
    encoded = canonical(plain, root="")
    digest = _keyed_digest(secret, encoded) if secret else hashlib.sha256(encoded).digest()
    return Fingerprint(_VERSION + digest[:FINGERPRINT_BYTES])


def checked_fingerprint_key(key: object) -> bytes:
    """Return the key for keyed fingerprints; b"" for None, which means plain hashes."""
    if key is None:
        return b""
    if not isinstance(key, bytes) or len(key) < MIN_KEY_BYTES:
        raise ConfigurationError(
            f"fingerprint_key must be at least {MIN_KEY_BYTES} secret bytes",
            hint="create one with secrets.token_bytes(32), and keep it where you keep other secrets",
        )
    return key


def fingerprint_key_id(secret: bytes) -> str:
    """Return a short HMAC of a constant, to notice a changed key; "" without a key.

    It is stored. The constant is not the encoding of a payload, so the HMAC reveals no fingerprint. It is so short that
    one in 65,536 guessed keys has the same value, so it cannot confirm a guess.
    """
    return _keyed_digest(secret, _KEY_ID).hex()[: 2 * _KEY_ID_BYTES] if secret else ""


FINGERPRINT_OF_KEY: Final = Fingerprint(_VERSION + b"key")
"""The fingerprint of a payload that is entirely part of the key. A larger payload under the key has another one."""


def hash_arguments(arguments: Mapping[str, object], salt: bytes, secret: bytes = b"") -> dict[str, str]:
    """Return a short hash per argument. `salt` is the id of the record's key."""
    if secret:
        salt = _keyed_digest(secret, salt)
    return {name: _part(name, value, salt) for name, value in arguments.items()}


def differing_arguments(stored: Mapping[str, str], current: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the arguments that differ, or that only one side has."""
    names = dict.fromkeys((*current, *stored))
    return tuple(name for name in names if stored.get(name) != current.get(name))


def comparable(one: bytes | None, other: bytes | None) -> bool:
    """Return whether two fingerprints can be compared: both exist and have the same encoder version."""
    return one is not None and other is not None and one[:1] == other[:1] != b""


def _part(name: str, value: object, salt: bytes) -> str:
    hasher = hashlib.sha256(_PART + salt + _encoded_name(name))
    hasher.update(canonical(value, root=name))  # not concatenated: that would copy a large value
    return hasher.hexdigest()[: 2 * _PART_BYTES]


@functools.lru_cache(maxsize=1024, typed=True)
def _encoded_name(name: str) -> bytes:
    """Encode a parameter name. Cached, because every call has the same few names."""
    return canonical(name)


def _keyed_digest(secret: bytes, data: bytes) -> bytes:
    import hmac  # imported here: few programs need it

    return hmac.digest(secret, data, "sha256")
