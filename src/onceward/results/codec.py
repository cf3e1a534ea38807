"""The envelope around a stored result.

    byte 0      codec: 1 = MessagePack with the extensions of `extensions.py`
    byte 1      version of the envelope
    byte 2      flags: 1 compressed, 2 encrypted
    bytes 3-6   checksum: CRC-32 over bytes 0-2 and the body
    then        the body: the encoded result; compressed: its size in 4 bytes, then zlib; encrypted: the ciphertext

Compression comes before encryption. An encrypted body is bound to the record and to bytes 0-2.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from onceward.errors import ConfigurationError, ResultCorrupt, ResultError, UnknownCodec
from onceward.protocol.unstored import LIMIT

from .cipher import Cipher
from .reader import RUNS_AGAIN
from .result_type import ResultType, Unstorable

CODEC: Final = 1
VERSION: Final = 1
COMPRESSED: Final = 1
ENCRYPTED: Final = 2

KIB: Final = 1024
MAX_BYTES: Final = 1024 * KIB  # accepted by every store; the limit of Firestore documents
COMPRESS_FROM: Final = 4 * KIB  # below it, zlib costs more time than the store saves
# Never decompress more than this, whatever a record declares: zlib expands a thousandfold, and decoding another eighty
# times (a list takes 1 byte in MessagePack and 80 in memory). Larger results are stored uncompressed.
MAX_UNPACKED: Final = 8 * 1024 * KIB

_HEADERS: Final = tuple(bytes((CODEC, VERSION, flags)) for flags in range(4))
_SUMS: Final = {header: zlib.crc32(header) for header in _HEADERS}
_PLAIN_HEADER: Final = _HEADERS[0]
_PLAIN_SUM: Final = _SUMS[_PLAIN_HEADER]
_BODY: Final = 7
_PLAIN_START: Final = int.from_bytes(_PLAIN_HEADER, "big") << 32
"""Plus the checksum, this is the header as one integer: one operation instead of three."""
_SIZE: Final = 4
_VIEWED_FROM: Final = 64 * KIB  # copying is faster than a memoryview below this size
_DIGEST: Final = 16  # bytes; a shorter result is its own digest
NO_DIGEST: Final = bytes(_DIGEST)
_seed_of = _SUMS.get
_number = int.from_bytes
_blake2b = hashlib.blake2b
_crc32 = zlib.crc32
_head = struct.Struct(">3sI").pack


ENCODED_NONE: Final = _PLAIN_HEADER + _crc32(b"\xc0", _PLAIN_SUM).to_bytes(4, "big") + b"\xc0"
"""None in its envelope, the most common result."""


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """An encoded result. If it cannot be stored, `data` is None and `reason` says why.

    `public_reason` is the reason without keys of dicts, for records and logs. If it is empty, use `reason`.

    Equal results have equal digests, although encryption produces different bytes each time. A result that could not
    be encoded has a digest of zeros.
    """

    data: bytes | None
    digest: bytes
    reason: str = ""
    public_reason: str = ""


def _place(record_id: bytes, cycle: int) -> bytes:
    """Return the data that an encrypted result is bound to. Without a cycle (latest states, saga steps): the id."""
    return b"%b/cycle/%d" % (record_id, cycle) if cycle else record_id


class Codec:
    """Encodes and decodes the results of one function. Thread-safe; has no state of a call."""

    __slots__ = (
        "_accept_plain",
        "_cipher",
        "_compress_from",
        "_decode",
        "_encode",
        "_encoded_none",
        "_max_bytes",
        "_packed_below",
        "_returns_none",
        "_store",
        "_type",
    )

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
        self._decode, self._encode = result_type.decode, result_type.encode  # saves an attribute lookup per call
        self._store = store
        self._max_bytes = max_bytes
        self._compress_from = MAX_UNPACKED + 1 if compress_from is None else compress_from
        self._packed_below = 0 if cipher is not None else min(self._compress_from, max_bytes - _BODY + 1)
        self._cipher = cipher
        self._accept_plain = accept_plain or cipher is None
        self._encoded_none: Encoded | None = None
        self._returns_none = result_type.allows(None)
        if cipher is None:
            self._encoded_none = self.encode(None, b"")

    @property
    def is_declared(self) -> bool:
        """Whether results have a declared type. False: the type of the value itself."""
        return self._type.is_declared

    @property
    def stores_results(self) -> bool:
        """False with `store_result=False`."""
        return self._store

    def encode(self, value: Any, record_id: bytes, cycle: int = 0) -> Encoded:
        """Return the result in its envelope. Never raises because of a value: the effect is already done.

        An encrypted result can be decrypted only in this record and cycle.
        """
        if value is None and self._encoded_none is not None:  # the most common result: encoded once
            return self._encoded_none
        if not self._store:
            return Encoded(None, NO_DIGEST, "results of this function are not stored, as declared")
        try:
            plain = self._encode(value)
            size = len(plain)
            if size < self._packed_below:  # within the limit, too small to compress, and not encrypted
                data = _head(_PLAIN_HEADER, _crc32(plain, _PLAIN_SUM)) + plain
                return Encoded(data, plain if size < _DIGEST else _blake2b(plain, digest_size=_DIGEST).digest())
            digest = self._digest(plain, record_id)
            if size + _BODY > self._max_bytes:
                return Encoded(None, digest, self._too_large(size + _BODY))
            data = self._wrap(plain, _place(record_id, cycle))
        except Unstorable as error:
            return Encoded(None, NO_DIGEST, str(error), error.public)
        except Exception as error:  # noqa: BLE001 (if the cipher fails, the result must not be stored unencrypted)
            return Encoded(None, NO_DIGEST, f"encoding it raised {type(error).__name__}")
        if len(data) > self._max_bytes:  # encryption adds some bytes
            return Encoded(None, digest, self._too_large(len(data)))
        return Encoded(data, digest)

    def _too_large(self, size: int) -> str:
        return f"it takes {size} bytes, {LIMIT} {self._max_bytes}"

    def pack_all(self, values: list[Any], record_ids: Sequence[bytes]) -> list[bytes]:
        """Return values in their envelopes. Unlike `encode`, raise `Unstorable` if a value cannot be stored."""
        plain = self._type.encode_all(values)
        largest = max(map(len, plain), default=0)
        if largest < self._packed_below:
            return [(_PLAIN_START + _crc32(one, _PLAIN_SUM)).to_bytes(_BODY, "big") + one for one in plain]
        if largest + _BODY > self._max_bytes:
            raise Unstorable(self._too_large(largest + _BODY))
        packed = [self._wrap(one, id) for one, id in zip(plain, record_ids, strict=True)]
        largest = max(map(len, packed), default=0)
        if largest > self._max_bytes:
            raise Unstorable(self._too_large(largest))
        return packed

    def decode(self, data: bytes, record_id: bytes, cycle: int = 0) -> Any:
        """Return a fresh copy of the stored result. `ResultCorrupt` and `UnknownCodec` are no reason to run again."""
        if data == ENCODED_NONE and self._accept_plain and self._returns_none:
            return None
        size = len(data)
        if size < _BODY:
            raise ResultCorrupt(f"the stored result is truncated: only {size} bytes are left")
        header = data[:3]
        seed = _seed_of(header)
        if seed is None:
            raise UnknownCodec(
                f"the stored result has codec {data[0]}, version {data[1]}, flags {data[2]}",
                hint="reading it needs a newer version of Onceward, or the record is damaged",
            )
        body = data[_BODY:] if size < _VIEWED_FROM else memoryview(data)[_BODY:]
        if _crc32(body, seed) != _number(data[3:_BODY], "big"):
            raise ResultCorrupt(
                "the stored result fails its checksum", hint=f"restore the record from a backup {RUNS_AGAIN}"
            )
        if seed != _PLAIN_SUM or not self._accept_plain:
            body = self._unwrap(body, data[2], header, _place(record_id, cycle))
        return self._decode(body)

    def lacks_result(self, data: bytes) -> bool:
        """Return whether the stored result is null, although the declared type does not allow None.

        A function cannot store that. Either a `with` block completed without a value, or an operator resolved the key
        without a result.
        """
        return data == ENCODED_NONE and not self._returns_none

    def _digest(self, plain: bytes, record_id: bytes) -> bytes:
        if self._cipher is None:
            return plain if len(plain) < _DIGEST else _blake2b(plain, digest_size=_DIGEST).digest()
        # Includes the record id, so equal results of two records have different digests.
        hasher = _blake2b(record_id, digest_size=_DIGEST, key=self._cipher.digest_key)
        hasher.update(plain)
        return hasher.digest()

    def _wrap(self, plain: bytes, record_id: bytes) -> bytes:
        """Return the envelope around an encoded result."""
        body, size, flags = plain, len(plain), 0
        if self._compress_from <= size <= MAX_UNPACKED:
            packed = size.to_bytes(_SIZE, "big") + zlib.compress(plain)
            if len(packed) < size:
                body, flags = packed, COMPRESSED
        if self._cipher is not None:
            flags |= ENCRYPTED
            body = self._cipher.seal(body, record_id + _HEADERS[flags])
        header = _HEADERS[flags]
        return _head(header, _crc32(body, _SUMS[header])) + body

    def _unwrap(self, body: bytes | memoryview, flags: int, header: bytes, record_id: bytes) -> bytes | memoryview:
        if flags & ENCRYPTED:
            if self._cipher is None:
                raise ResultCorrupt(
                    "the stored result is encrypted", hint="configure this function with the cipher that wrote it"
                )
            try:
                body = self._cipher.open(bytes(body), record_id + header)
            except ResultError:
                raise
            except Exception as error:
                raise ResultCorrupt(f"decrypting the stored result raised {type(error).__name__}") from error
        elif not self._accept_plain:
            raise ResultCorrupt(
                "the stored result is not encrypted, although this function has a cipher",
                hint="set accept_plain=True as long as there are records from before the cipher",
            )
        return _inflate(body) if flags & COMPRESSED else body


def unpacked_size(data: bytes) -> int:
    """Estimate the decoded size without decoding. An encrypted size is unknown: return the maximum."""
    if len(data) < _BODY + _SIZE or not data[2] & COMPRESSED:
        return len(data)
    return MAX_UNPACKED if data[2] & ENCRYPTED else int.from_bytes(data[_BODY : _BODY + _SIZE], "big")


def is_encrypted(data: bytes) -> bool:
    """Return whether the stored result is encrypted."""
    return len(data) >= _BODY and bool(data[2] & ENCRYPTED)


def _inflate(body: bytes | memoryview) -> bytes:
    size = int.from_bytes(body[:_SIZE], "big")
    if len(body) <= _SIZE or size > MAX_UNPACKED:
        raise ResultCorrupt(f"the stored result declares {size} bytes; the limit is {MAX_UNPACKED}")
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(body[_SIZE:], size + 1)  # one more than declared: enough to detect a wrong size
    except zlib.error as error:
        raise ResultCorrupt("the stored result cannot be decompressed") from error
    if len(plain) != size or not unpacker.eof or unpacker.unused_data:
        raise ResultCorrupt(f"the stored result does not decompress to the {size} bytes that it declares")
    return plain


PLAIN: Final = Codec(ResultType())
"""For functions without a return annotation: stores everything except instances of classes."""
