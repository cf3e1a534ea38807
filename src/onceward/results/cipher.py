"""What the codec asks of a cipher. `onceward.results.encryption.AesGcm` is one; a key service may be another."""

from __future__ import annotations

from typing import Protocol


class Cipher(Protocol):
    """Authenticated encryption with associated data."""

    @property
    def digest_key(self) -> bytes:
        """16 to 64 secret bytes: digests of results are keyed with it, so that nobody can guess a result from one."""
        raise NotImplementedError

    def seal(self, plain: bytes, associated: bytes) -> bytes:
        """Encrypt. The answer opens only with the same `associated`, and says which key opens it."""
        raise NotImplementedError

    def open(self, sealed: bytes, associated: bytes) -> bytes:
        """Decrypt. Raises `ResultCorrupt` if key, bytes or `associated` are not those of `seal`."""
        raise NotImplementedError
