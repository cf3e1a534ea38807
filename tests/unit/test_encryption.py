"""Encrypted results: bound to their record, readable after rotation, silent about keys."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import Once
from onceward.errors import ConfigurationError, MissingExtra, ResultCorrupt, ResultError
from onceward.results.cipher import Cipher
from onceward.results.codec import COMPRESSED, ENCRYPTED, PLAIN, Codec
from onceward.results.encryption import AesGcm
from onceward.results.result_type import ResultType
from onceward.stores.sqlite import SQLiteStore
from onceward.testing import FakeClock
from tests.clients import SyncClient

RECORD = hashlib.sha256(b"one record").digest()
OTHER = hashlib.sha256(b"another record").digest()
OLD, NEW = bytes(range(32)), bytes(range(32, 64))


def codec(cipher: Cipher, **settings: Any) -> Codec:
    return Codec(ResultType(), cipher=cipher, **settings)


def sealed(writer: Codec, value: Any) -> bytes:
    data = writer.encode(value, RECORD).data
    assert data is not None
    return data


@given(st.text() | st.integers() | st.lists(st.booleans(), max_size=500), st.sampled_from([None, 0]))
def test_an_encrypted_result_comes_back(value: Any, compress_from: int | None) -> None:
    writer = codec(AesGcm(NEW), compress_from=compress_from)
    assert writer.decode(sealed(writer, value), RECORD) == value


def test_nothing_of_the_result_can_be_read_in_the_store() -> None:
    data = sealed(codec(AesGcm(NEW)), "a very secret result")
    assert b"secret" not in data
    assert data[2] == ENCRYPTED
    assert sealed(codec(AesGcm(NEW)), "s" * 10_000)[2] == ENCRYPTED | COMPRESSED


def test_a_result_moved_to_another_record_does_not_open() -> None:
    writer = codec(AesGcm(NEW))
    data = sealed(writer, 1)
    assert writer.decode(data, RECORD) == 1
    with pytest.raises(ResultCorrupt, match="another record"):
        writer.decode(data, OTHER)


def test_the_header_is_part_of_what_is_authenticated() -> None:
    writer = codec(AesGcm(NEW))
    data = bytearray(sealed(writer, 1))
    data[2] |= COMPRESSED
    data[3:7] = zlib.crc32(bytes(data[:3] + data[7:])).to_bytes(4, "big")
    with pytest.raises(ResultCorrupt, match="cannot be decrypted"):
        writer.decode(bytes(data), RECORD)


@pytest.mark.fault("F25")
def test_a_forged_checksum_does_not_help_a_forged_body() -> None:
    writer = codec(AesGcm(NEW))
    data = sealed(writer, {"paid": False})
    for place in range(7, len(data)):
        forged = bytearray(data)
        forged[place] ^= 1
        forged[3:7] = zlib.crc32(bytes(forged[:3] + forged[7:])).to_bytes(4, "big")
        with pytest.raises(ResultCorrupt):
            writer.decode(bytes(forged), RECORD)


@pytest.mark.fault("F25")
def test_every_changed_byte_is_noticed() -> None:
    writer = codec(AesGcm(NEW))
    data = sealed(writer, "abc")
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x01
        with pytest.raises(ResultError):
            writer.decode(bytes(damaged), RECORD)


def test_old_records_open_after_rotation_and_new_ones_use_the_new_key() -> None:
    before = codec(AesGcm({"2023": OLD}))
    data = sealed(before, "kept")
    after = codec(AesGcm({"2023": OLD, "2024": NEW}, current="2024"))
    assert after.decode(data, RECORD) == "kept"
    with pytest.raises(ResultCorrupt, match="encrypted with key '2024', which is not in the key ring"):
        before.decode(sealed(after, "new"), RECORD)


def test_a_wrong_key_is_named_by_its_id_and_never_shown() -> None:
    data = sealed(codec(AesGcm({"main": OLD})), 1)
    with pytest.raises(ResultCorrupt, match="cannot be decrypted with key 'main'") as caught:
        codec(AesGcm({"main": NEW})).decode(data, RECORD)
    cipher = AesGcm({"a": OLD, "main": NEW}, current="main")
    shown = f"{caught.value!r} {caught.value} {cipher!r} {cipher}"
    for key in (OLD, NEW):
        assert key.hex() not in shown
        assert repr(key)[2:-1] not in shown
    assert repr(cipher) == "AesGcm(key ids: 'a', 'main'; current: 'main')"


def test_equal_results_have_equal_digests_although_their_bytes_differ() -> None:
    writer = codec(AesGcm(NEW))
    one, two = writer.encode("x", RECORD), writer.encode("x", RECORD)
    assert one.data != two.data
    assert one.digest == two.digest
    assert one.digest != writer.encode("y", RECORD).digest


def test_digests_give_nothing_away() -> None:
    writer = codec(AesGcm(NEW))
    digest = writer.encode(True, RECORD).digest
    assert digest != PLAIN.encode(True, RECORD).digest
    assert digest != codec(AesGcm(OLD)).encode(True, RECORD).digest
    assert digest != writer.encode(True, OTHER).digest
    assert NEW not in AesGcm(NEW).digest_key


def test_plain_records_are_refused_unless_they_are_declared() -> None:
    plain = PLAIN.encode({"paid": True}, RECORD).data
    assert plain is not None
    with pytest.raises(ResultCorrupt, match="accept_plain=True"):
        codec(AesGcm(NEW)).decode(plain, RECORD)
    assert codec(AesGcm(NEW), accept_plain=True).decode(plain, RECORD) == {"paid": True}


@pytest.mark.parametrize(
    ("keys", "current"),
    [
        (b"short", None),
        ({"a": bytes(16)}, None),
        ({}, None),
        ({"a": OLD, "b": NEW}, None),
        ({"a": OLD}, "b"),
        ({"": OLD}, None),
        ({"x" * 256: OLD}, None),
        ({"a": "k" * 32}, None),
    ],
)
def test_a_ring_that_cannot_work_is_refused_immediately(keys: Any, current: str | None) -> None:
    with pytest.raises(ConfigurationError):
        AesGcm(keys, current=current)


def test_a_generated_key_fits() -> None:
    key = AesGcm.generate_key()
    assert key != AesGcm.generate_key()
    assert codec(AesGcm(key)).encode(1, RECORD).data is not None


@pytest.mark.parametrize(
    "rubbish", [b"", b"\x00", b"\xff", b"\x010", b"\x010" + bytes(12), b"\x010" + bytes(5), b"\x05\xff\xfe"]
)
def test_rubbish_does_not_open(rubbish: bytes) -> None:
    with pytest.raises(ResultCorrupt):
        AesGcm(NEW).open(rubbish, RECORD)


def test_without_cryptography_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(MissingExtra, match=r"onceward\[encryption\]"):
        AesGcm(NEW)


@pytest.mark.mission("A5")
def test_a_client_may_read_what_was_stored_before_it_had_a_cipher(client: SyncClient) -> None:
    client.run("k", str, "plain")
    strict = client.another(cipher=AesGcm(NEW))
    with pytest.raises(ResultCorrupt, match="accept_plain=True"):
        strict.run("k", str, "plain")
    lenient = client.another(cipher=AesGcm(NEW), accept_plain=True)
    assert lenient.run("k", str, "plain") == "plain"
    entry = lenient.read("k")
    assert entry.value == "plain"
    lenient.run("new", str, "sealed")
    with pytest.raises(ResultCorrupt, match="is encrypted"):
        client.run("new", str, "sealed")


def test_accepting_plain_results_without_a_cipher_is_a_mistake(client: SyncClient) -> None:
    with pytest.raises(ConfigurationError, match="cipher"):
        client.another(accept_plain=True)


@pytest.mark.finding("N42")
def test_a_result_of_an_earlier_cycle_that_is_put_back_is_detected(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "once.db"
    results = iter(["first", "second"])
    with Once(SQLiteStore(path, clock=clock), cipher=AesGcm(NEW), window="1h") as once:

        def result_bytes(new: bytes | None = None) -> bytes:
            with contextlib.closing(sqlite3.connect(path)) as database, database:
                if new is not None:
                    database.execute("UPDATE onceward_records SET result = ?", (new,))
                [found] = database.execute("SELECT result FROM onceward_records").fetchone()
                return bytes(found)

        assert once.run("order 7", lambda: next(results)) == "first"
        earlier = result_bytes()
        clock.advance("2h")
        assert once.run("order 7", lambda: next(results)) == "second"
        assert result_bytes(earlier) == earlier
        with pytest.raises(ResultCorrupt):
            once.run("order 7", lambda: next(results))
