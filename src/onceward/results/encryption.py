"""Encryption of results: AES-256-GCM with a key ring. Needs the extra `onceward[encryption]`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from onceward.errors import ConfigurationError, MissingExtra, ResultCorrupt

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_KEY: Final = 32
_NONCE: Final = 12  # bytes; random nonces of this size are safe for about four billion results per key; then rotate
_MAX_ID: Final = 255
_DEFAULT_ID: Final = "0"


class AesGcm:
    """A `Cipher`. Writes with the `current` key and reads with any key of the ring.

    `keys` is one key of 32 bytes, or a mapping from key ids to keys. With several keys, `current` is required;
    otherwise it raises ConfigurationError. To rotate: add a new key under a new id, make it current, and drop the old
    one when its records are gone. The format of an encrypted result: length of the key id, key id, nonce, ciphertext
    and tag.
    """

    __slots__ = ("_current", "_ring", "digest_key")

    def __init__(self, keys: Mapping[str, bytes] | bytes, *, current: str | None = None) -> None:
        ring = {_DEFAULT_ID: keys} if isinstance(keys, bytes) else dict(keys)
        if current is None:
            if len(ring) != 1:
                raise ConfigurationError(
                    "there are several keys, and none is marked as current", hint="pass current='<key id>'"
                )
            current = next(iter(ring))
        if current not in ring:
            raise ConfigurationError(f"the current key {current!r} is not in the key ring")
        aesgcm = _aesgcm()
        for key_id, key in ring.items():
            if not isinstance(key, bytes) or len(key) != _KEY:
                raise ConfigurationError(
                    f"key {key_id!r} must be {_KEY} bytes", hint="create one with AesGcm.generate_key()"
                )
            if not 0 < len(key_id.encode()) <= _MAX_ID:
                raise ConfigurationError(f"a key id must have 1 to {_MAX_ID} bytes")
        self._ring: dict[bytes, AESGCM] = {key_id.encode(): aesgcm(key) for key_id, key in ring.items()}
        self._current = current.encode()
        # A separate key for a separate purpose: a digest must not reveal anything about the encryption key.
        self.digest_key: Final = hashlib.blake2b(b"digest", digest_size=_KEY, key=ring[current]).digest()

    @staticmethod
    def generate_key() -> bytes:
        """Return a new random key."""
        return os.urandom(_KEY)

    def seal(self, plain: bytes, associated: bytes) -> bytes:
        """Encrypt with the current key."""
        nonce = os.urandom(_NONCE)
        key_id = self._current
        return b"%c%b%b%b" % (len(key_id), key_id, nonce, self._ring[key_id].encrypt(nonce, plain, associated))

    def open(self, sealed: bytes, associated: bytes) -> bytes:
        """Decrypt with the key whose id is in the sealed bytes."""
        from cryptography.exceptions import InvalidTag

        start = 1 + sealed[0] if sealed else 1
        key_id = sealed[1:start]
        shown = key_id.decode(errors="replace")
        cipher = self._ring.get(key_id)
        if cipher is None:
            raise ResultCorrupt(f"the stored result was encrypted with key {shown!r}, which is not in the key ring")
        nonce = sealed[start : start + _NONCE]
        try:
            return cipher.decrypt(nonce, sealed[start + _NONCE :], associated)
        except (InvalidTag, ValueError):
            raise ResultCorrupt(
                f"the stored result cannot be decrypted with key {shown!r}",
                hint="either the key has been replaced under the same id, or the result belongs to another record",
            ) from None

    def __repr__(self) -> str:
        ids = ", ".join(repr(key_id.decode()) for key_id in self._ring)
        return f"AesGcm(key ids: {ids}; current: {self._current.decode()!r})"


def _aesgcm() -> type[AESGCM]:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise MissingExtra(
            "encrypted results need the package cryptography", hint="pip install 'onceward[encryption]'"
        ) from error
    return AESGCM
