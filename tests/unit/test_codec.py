"""The envelope: checksum, versions, compression, size limit, and "not stored"."""

from __future__ import annotations

import dataclasses
import decimal
import hashlib
import random
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.errors import ConfigurationError, ResultCorrupt, ResultError, UnknownCodec
from onceward.results import codec as codec_module
from onceward.results.codec import COMPRESSED, PLAIN, Codec, Encoded
from onceward.results.result_type import ResultType

RECORD = hashlib.sha256(b"scope and key").digest()
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def stored(encoded: Encoded) -> bytes:
    assert encoded.data is not None, encoded.reason
    return encoded.data


def envelope(flags: int, body: bytes, *, codec: int = 1, version: int = 1) -> bytes:
    """Written by hand from the description of the format, not by the code under test."""
    header = bytes([codec, version, flags])
    return header + zlib.crc32(header + body).to_bytes(4, "big") + body


@given(json_values, st.sampled_from([None, 0, 10, 4096]))
def test_results_come_back_whatever_the_compression(value: Any, compress_from: int | None) -> None:
    codec = Codec(ResultType(), compress_from=compress_from)
    encoded = codec.encode(value, RECORD)
    assert encoded.reason == ""
    assert codec.decode(stored(encoded), RECORD) == value
    assert PLAIN.decode(stored(encoded), RECORD) == value  # a reader does not need the writer's settings
    assert encoded.digest == PLAIN.encode(value, RECORD).digest


@pytest.mark.rival(2)
@pytest.mark.fault("F20")
@pytest.mark.parametrize("value", [None, 0, False, "", [], {}], ids=repr)
def test_empty_values_are_stored_and_distinguished_from_not_stored(value: Any) -> None:
    encoded = PLAIN.encode(value, RECORD)
    back = PLAIN.decode(stored(encoded), RECORD)
    assert type(back) is type(value)
    assert back == value


GOLDEN: list[tuple[Any, str]] = [
    (None, "010100035e10fec0"),
    ({"id": 7, "ok": True}, "0101009ed3796782a2696407a26f6bc3"),
    ((1, decimal.Decimal("2.50"), {3: "x"}), "0101002c72d704c70e029301d611322e3530d6019203a178"),
]


@pytest.mark.parametrize(("value", "expected"), GOLDEN)
def test_the_stored_format_has_not_changed(value: Any, expected: str) -> None:
    encoded = PLAIN.encode(value, RECORD)
    assert stored(encoded).hex() == expected, (
        "records of earlier releases must stay readable: raise the version instead"
    )
    assert PLAIN.decode(bytes.fromhex(expected), RECORD) == value


def test_a_compressed_record_of_an_earlier_release_still_reads() -> None:
    old = bytes.fromhex("0101015d8d76eb0000016b789cbbc3a0b1223f2f39b53cb128659441530600e56aa03d")
    assert PLAIN.decode(old, RECORD) == ["onceward"] * 40


def test_the_envelope_is_laid_out_as_described() -> None:
    assert stored(PLAIN.encode([1], RECORD)) == envelope(0, b"\x91\x01")
    compressed = stored(Codec(ResultType(), compress_from=0).encode("a" * 100, RECORD))
    plain = b"\xd9\x64" + b"a" * 100
    assert compressed[2] == COMPRESSED
    assert compressed == envelope(COMPRESSED, compressed[7:])
    assert compressed[7:11] == len(plain).to_bytes(4, "big")
    assert zlib.decompress(compressed[11:]) == plain


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.fault("F25", "F26")
@pytest.mark.parametrize("compress_from", [None, 0])
@given(json_values, st.integers(0, 2**32), st.integers(1, 255))
def test_one_changed_byte_anywhere_is_noticed(compress_from: int | None, value: Any, place: int, change: int) -> None:
    codec = Codec(ResultType(), compress_from=compress_from)
    damaged = bytearray(stored(codec.encode(value, RECORD)))
    damaged[place % len(damaged)] ^= change
    with pytest.raises(ResultError):
        codec.decode(bytes(damaged), RECORD)


@pytest.mark.fault("F25")
@pytest.mark.parametrize("compress_from", [None, 0])
def test_every_byte_and_every_length_of_one_envelope(compress_from: int | None) -> None:
    codec = Codec(ResultType(), compress_from=compress_from)
    data = stored(codec.encode({"text": "abc" * 20, "n": [1.5, None, (2,)]}, RECORD))
    for place in range(len(data)):
        for change in (1, 2, 3, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[place] ^= change
            with pytest.raises(ResultError):
                codec.decode(bytes(damaged), RECORD)
        with pytest.raises(ResultCorrupt):
            codec.decode(data[:place], RECORD)
    with pytest.raises(ResultCorrupt):
        codec.decode(data + b"\0", RECORD)


@pytest.mark.fault("F26")
@pytest.mark.parametrize(
    ("codec", "version", "flags"), [(0, 1, 0), (2, 1, 0), (1, 0, 0), (1, 2, 0), (1, 1, 4), (1, 1, 0x80)]
)
def test_a_codec_version_or_flag_from_the_future_is_refused(codec: int, version: int, flags: int) -> None:
    data = envelope(flags, b"\x01", codec=codec, version=version)
    with pytest.raises(
        UnknownCodec, match=f"codec {codec}, version {version}, flags {flags}.*newer version of Onceward"
    ):
        PLAIN.decode(data, RECORD)


def test_an_encrypted_result_without_a_cipher_asks_for_it() -> None:
    with pytest.raises(ResultCorrupt, match="configure this function with the cipher"):
        PLAIN.decode(envelope(2, b"sealed"), RECORD)


# --- compression -----------------------------------------------------------------------------------------------------


def test_compression_begins_at_its_size_and_only_where_it_helps() -> None:
    codec = Codec(ResultType(), compress_from=100)
    noise = random.Random(1).randbytes(1000)
    flags = [stored(codec.encode(value, RECORD))[2] for value in ("a" * 90, "a" * 110, noise)]
    assert flags == [0, COMPRESSED, 0]
    assert len(stored(PLAIN.encode("a" * 100_000, RECORD))) < 1000


def test_a_bomb_is_refused_before_it_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_module, "MAX_UNPACKED", 10_000)
    real = zlib.decompressobj
    huge = zlib.compress(b"\x00" * 1_000_000)

    class Watched:
        """zlib, but it records how much output was requested."""

        asked: list[int] = []  # noqa: RUF012  # one test, one list

        def __init__(self) -> None:
            self.inner = real()

        def decompress(self, data: bytes, most: int) -> bytes:
            Watched.asked.append(most)
            return self.inner.decompress(data, most)

        eof = property(lambda self: self.inner.eof)
        unused_data = property(lambda self: self.inner.unused_data)

    monkeypatch.setattr(zlib, "decompressobj", Watched)
    for declared, complaint in (
        (10_000, "does not decompress to"),
        (1_000_000, "the limit is 10000"),
        (2**32 - 1, "the limit is 10000"),
    ):
        with pytest.raises(ResultCorrupt, match=complaint):
            PLAIN.decode(envelope(COMPRESSED, declared.to_bytes(4, "big") + huge), RECORD)
    assert Watched.asked == [10_001]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0\0\0\x01",
        b"\0\0\0\x05not zlib",
        b"\0\0\0\x01" + zlib.compress(b"\x01\x01"),
        b"\0\0\0\x03" + zlib.compress(b"\x01\x01"),
        b"\0\0\0\x01" + zlib.compress(b"\x01") + b"more",
        b"\0\0\0\x01" + zlib.compress(b"\x01")[:-1],
    ],
)
def test_a_compressed_body_must_be_what_it_declares(body: bytes) -> None:
    with pytest.raises(ResultCorrupt):
        PLAIN.decode(envelope(COMPRESSED, body), RECORD)


# --- not stored ------------------------------------------------------------------------------------------------------


@pytest.mark.fault("F21")
@pytest.mark.rival(13)
def test_what_cannot_be_stored_is_reported_and_not_raised() -> None:
    encoded = PLAIN.encode({"rows": (row for row in [1])}, RECORD)
    assert encoded.data is None
    assert encoded.reason == "result['rows']: builtins:generator is not a type that can be stored"
    assert encoded.digest == bytes(16)


@pytest.mark.fault("F22")
@pytest.mark.rival(13)
def test_the_size_limit_counts_before_compression() -> None:
    noise = random.Random(1).randbytes(2000)
    codec = Codec(ResultType(), max_bytes=1000, compress_from=100)
    refused = codec.encode(noise, RECORD)
    assert refused.data is None
    assert refused.reason == "it takes 2010 bytes, and the limit is 1000"
    assert refused.digest == PLAIN.encode(noise, RECORD).digest
    assert codec.encode("a" * 2000, RECORD).data is None, "although it compresses well"
    assert codec.encode("a" * 900, RECORD).data is not None
    exact = len(stored(PLAIN.encode(noise, RECORD)))
    assert Codec(ResultType(), max_bytes=exact).encode(noise, RECORD).data is not None
    assert Codec(ResultType(), max_bytes=exact - 1).encode(noise, RECORD).data is None


def test_a_function_may_decline_to_store_its_results() -> None:
    encoded = Codec(ResultType(), store=False).encode({"secret": 1}, RECORD)
    assert encoded.data is None
    assert "as declared" in encoded.reason


@pytest.mark.fault("F21")
def test_even_broken_classes_in_a_result_raise_nothing() -> None:
    class Hostile:
        def __getattribute__(self, name: str) -> Any:
            raise SystemError(name)

        def __reduce__(self) -> str:
            raise AssertionError("nothing is pickled")

    for value in (Hostile(), [Hostile()], {1: Hostile()}, {Hostile(): 1}, (Hostile(),)):
        assert PLAIN.encode(value, RECORD).data is None


def test_a_failing_cipher_never_leads_to_plain_text_in_the_store() -> None:
    class Unplugged:
        digest_key = bytes(32)

        def seal(self, plain: bytes, associated: bytes) -> bytes:
            raise ConnectionError("no key service")

        def open(self, sealed: bytes, associated: bytes) -> bytes:
            raise ConnectionError("no key service")

    codec = Codec(ResultType(), cipher=Unplugged())
    assert codec.encode("secret", RECORD) == Encoded(None, bytes(16), "encoding it raised ConnectionError")
    with pytest.raises(ResultCorrupt, match="raised ConnectionError"):
        codec.decode(envelope(2, b"x"), RECORD)


@pytest.mark.parametrize("settings", [{"max_bytes": 0}, {"max_bytes": -1}, {"compress_from": -1}])
def test_settings_that_cannot_work_are_refused_immediately(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        Codec(ResultType(), **settings)  # type: ignore[arg-type]


# --- replays ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Receipt:
    id: int
    lines: list[str]


@pytest.mark.fault("F24")
def test_each_replay_is_a_fresh_copy() -> None:
    codec = Codec(ResultType(Receipt))
    receipt = Receipt(1, ["a"])
    data = stored(codec.encode(receipt, RECORD))
    receipt.lines.append("b")
    codec.decode(data, RECORD).lines.append("c")
    assert codec.decode(data, RECORD) == Receipt(1, ["a"])


@given(json_values, json_values)
def test_digests_are_equal_for_equal_results_only(one: Any, other: Any) -> None:
    def digest(value: Any) -> bytes:
        return PLAIN.encode(value, RECORD).digest

    assert digest(one) == digest(one)
    assert (digest(one) == digest(other)) == (repr(one) == repr(other))
