"""The interface of a cipher for results. `onceward.results.encryption.AesGcm` implements it; so can a KMS client."""

from __future__ import annotations

from typing import Protocol


class Cipher(Protocol):
    """Authenticated encryption with associated data."""

    @property
    def digest_key(self) -> bytes:
        """16 to 64 secret bytes that key the digests of results, so a result cannot be guessed from its digest."""
        raise NotImplementedError

    def seal(self, plain: bytes, associated: bytes) -> bytes:
        """Encrypt `plain`, and return bytes that contain the id of the key.

        `associated` is not secret. The output can be decrypted only together with the same `associated`.
        """
        raise NotImplementedError

    def open(self, sealed: bytes, associated: bytes) -> bytes:
        """Decrypt the `sealed` bytes, and return the plain ones.

        Raise `ResultCorrupt` if key, bytes or `associated` differ from those of `seal`.
        """
        raise NotImplementedError
