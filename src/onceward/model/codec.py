"""The envelope around a stored result.

    byte 0      codec: 1 = MessagePack with the extensions of `extensions.py`
    byte 1      version of the envelope
    byte 2      flags: 1 compressed, 2 encrypted
    bytes 3-6   checksum: CRC-32 over bytes 0-2 and the body
    then        the body: the encoded result; compressed: 4 bytes of its size, then zlib; encrypted: the sealed body

Compression comes before encryption. A sealed body is bound to the record and to bytes 0-2.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import Any, Final

import msgspec

from onceward.errors import ConfigurationError, ResultCorrupt, ResultError, UnknownCodec
from onceward.model.cipher import Cipher
from onceward.model.results import ResultType, Unstorable

CODEC: Final = 1
VERSION: Final = 1
COMPRESSED: Final = 1
ENCRYPTED: Final = 2

KIB: Final = 1024
MAX_BYTES: Final = 1024 * KIB  # what every store takes; Firestore's documents end there
COMPRESS_FROM: Final = 4 * KIB  # below it, zlib costs more time than the store saves
# More than this is never unpacked, whatever a record declares: about a thousandfold of a small record is a bomb.
MAX_UNPACKED: Final = 64 * 1024 * KIB

_HEADERS: Final = tuple(bytes((CODEC, VERSION, flags)) for flags in range(4))
_SUMS: Final = {header: zlib.crc32(header) for header in _HEADERS}
_PLAIN_HEADER: Final = _HEADERS[0]
_PLAIN_SUM: Final = _SUMS[_PLAIN_HEADER]
_BODY: Final = 7
_SIZE: Final = 4
_DIGEST: Final = 16  # bytes; what is shorter is its own digest
_NO_DIGEST: Final = bytes(_DIGEST)
_blake2b = hashlib.blake2b
_crc32 = zlib.crc32


class Encoded(msgspec.Struct, frozen=True):
    """A result, ready to be stored; `data` is None, and `reason` says why, if it is not to be stored.

    Equal results have equal digests, although encryption makes different bytes each time. What could not be encoded
    at all has a digest of zeros.
    """

    data: bytes | None
    digest: bytes
    reason: str = ""


class Codec:
    """Results of one function, to bytes and back. Shared by threads; holds nothing of a call."""

    __slots__ = ("_accept_plain", "_cipher", "_compress_from", "_max_bytes", "_store", "_type")

    def __init__(
        self,
        result_type: ResultType,
        *,
        store: bool = True,
        max_bytes: int = MAX_BYTES,
        compress_from: int | None = COMPRESS_FROM,
        cipher: Cipher | None = None,
        accept_plain: bool = False,
    ) -> None:
        if max_bytes <= 0 or (compress_from is not None and compress_from < 0):
            raise ConfigurationError("max_bytes must be positive and compress_from not negative")
        self._type = result_type
        self._store = store
        self._max_bytes = max_bytes
        self._compress_from = MAX_UNPACKED + 1 if compress_from is None else compress_from
        self._cipher = cipher
        self._accept_plain = accept_plain or cipher is None

    def encode(self, value: Any, record_id: bytes) -> Encoded:
        """The result in its envelope. Never raises for a value: the effect is done, whatever it returned."""
        if not self._store:
            return Encoded(None, _NO_DIGEST, "results of this function are not stored, as declared")
        try:
            plain = self._type.encode(value)
            if self._cipher is None and len(plain) < self._compress_from:
                data = _PLAIN_HEADER + _crc32(plain, _PLAIN_SUM).to_bytes(4, "big") + plain
            else:
                data = self._wrap(plain, record_id)
            digest = self._digest(plain, record_id)
        except Unstorable as error:
            return Encoded(None, _NO_DIGEST, str(error))
        except Exception as error:  # noqa: BLE001  # as the docstring says; a failing cipher is no reason to store it plain
            return Encoded(None, _NO_DIGEST, f"encoding it raised {type(error).__name__}")
        if len(data) > self._max_bytes:
            return Encoded(None, digest, f"it takes {len(data)} bytes, and the limit is {self._max_bytes}")
        return Encoded(data, digest)

    def pack(self, value: Any, record_id: bytes) -> bytes:
        """The value in its envelope, for those who cannot do without it: `Unstorable` says why it cannot be kept."""
        plain = self._type.encode(value)
        if self._cipher is None and len(plain) < self._compress_from:
            data = _PLAIN_HEADER + _crc32(plain, _PLAIN_SUM).to_bytes(4, "big") + plain
        else:
            data = self._wrap(plain, record_id)
        if len(data) > self._max_bytes:
            raise Unstorable(f"it takes {len(data)} bytes, and the limit is {self._max_bytes}")
        return data

    def decode(self, data: bytes, record_id: bytes) -> Any:
        """A fresh copy of the stored result. Raises `ResultCorrupt` or `UnknownCodec`, never anything to re-run for."""
        if len(data) < _BODY:
            raise ResultCorrupt(f"the stored result was cut off: {len(data)} bytes are left")
        header = data[:3]
        seed = _SUMS.get(header)
        if seed is None:
            raise UnknownCodec(
                f"the stored result has codec {data[0]}, version {data[1]}, flags {data[2]}",
                hint="it needs a newer Onceward to read it, or the record is damaged",
            )
        body = data[_BODY:]
        if _crc32(body, seed) != int.from_bytes(data[3:_BODY], "big"):
            raise ResultCorrupt("the stored result fails its checksum", hint="restore the record, or forget the key")
        flags = data[2]
        if flags or not self._accept_plain:
            body = self._unwrap(body, flags, header, record_id)
        return self._type.decode(body)

    def _digest(self, plain: bytes, record_id: bytes) -> bytes:
        if self._cipher is None:
            return plain if len(plain) < _DIGEST else _blake2b(plain, digest_size=_DIGEST).digest()
        # With the record in it, equal results of two records do not show as equal.
        return _blake2b(record_id + plain, digest_size=_DIGEST, key=self._cipher.digest_key).digest()

    def _wrap(self, plain: bytes, record_id: bytes) -> bytes:
        flags, body = 0, plain
        if self._compress_from <= len(plain) <= MAX_UNPACKED:
            packed = len(plain).to_bytes(_SIZE, "big") + zlib.compress(plain)
            if len(packed) < len(plain):
                flags, body = COMPRESSED, packed
        if self._cipher is not None:
            flags |= ENCRYPTED
            body = self._cipher.seal(body, record_id + _HEADERS[flags])
        header = _HEADERS[flags]
        return header + _crc32(body, _SUMS[header]).to_bytes(4, "big") + body

    def _unwrap(self, body: bytes, flags: int, header: bytes, record_id: bytes) -> bytes:
        if flags & ENCRYPTED:
            if self._cipher is None:
                raise ResultCorrupt(
                    "the stored result is encrypted", hint="give this function the cipher that wrote it"
                )
            try:
                body = self._cipher.open(body, record_id + header)
            except ResultError:
                raise
            except Exception as error:
                raise ResultCorrupt(f"decrypting the stored result raised {type(error).__name__}") from error
        elif not self._accept_plain:
            raise ResultCorrupt(
                "the stored result is not encrypted, although this function has a cipher",
                hint="set accept_plain=True while records from before the cipher are alive",
            )
        return _inflate(body) if flags & COMPRESSED else body


def unpacked_size(data: bytes) -> int:
    """About how many bytes there are to decode, at a glance. What only the cipher's key tells counts as the most."""
    if len(data) < _BODY + _SIZE or not data[2] & COMPRESSED:
        return len(data)
    return MAX_UNPACKED if data[2] & ENCRYPTED else int.from_bytes(data[_BODY : _BODY + _SIZE], "big")


def _inflate(body: bytes) -> bytes:
    size = int.from_bytes(body[:_SIZE], "big")
    if len(body) <= _SIZE or size > MAX_UNPACKED:
        raise ResultCorrupt(f"the stored result declares {size} bytes, and the limit is {MAX_UNPACKED}")
    unpacker = zlib.decompressobj()
    try:
        # One byte more than declared shows that there is more, without unpacking all of it.
        plain = unpacker.decompress(body[_SIZE:], size + 1)
    except zlib.error as error:
        raise ResultCorrupt("the stored result cannot be decompressed") from error
    if len(plain) != size or not unpacker.eof or unpacker.unused_data:
        raise ResultCorrupt(f"the stored result does not unpack to the {size} bytes that it declares")
    return plain


PLAIN: Final = Codec(ResultType())
"""For functions that declare no return type: everything but instances of classes."""
