"""Parsers of bytes in a store that another program may have written."""

from __future__ import annotations

import msgspec

from onceward.client.compare_declarations import StoredDeclaration, decode_declaration
from onceward.errors import StoreBroken
from onceward.protocol.history import HistoryEvent
from onceward.protocol.record import READER
from onceward.stores.redis.history import decode_event, encode_event
from onceward.stores.redis.maintenance import ENTRY, decode_entry, redact_entry
from onceward.stores.redis.records import HEAD, StoredFields, decode_record
from tests.fuzz.target import Target

ID = b"r" * 32
FIELDS = StoredFields(
    token=7, min_reader=READER, state=1, after_crash=0, attempt=1, max_attempts=3, ask_first=False, released=False,
    stored=True, final=False, cycle=0, created_at=0, claimed_at=0, updated_at=5, renewed_at=0, lease_until=60,
    retry_at=False, valid_until="86400", slide="0", nonce=2, fingerprint=2, digest=2, scope="shop/charge",
    key="charge:7", owner="host:1", arguments='{"cents":"ab"}', note="{}", error_type="", error="", has_result=True,
)  # fmt: skip


def stored_record() -> bytes:
    fields = msgspec.msgpack.encode(FIELDS)
    return HEAD.pack(READER, 7, 0, 2, 2, 2, len(fields)) + b"nnffdd" + fields + b"result"


def stored_event() -> bytes:
    event = HistoryEvent(ID, 7, "failed", 1, 2, 3, 1, "host:1", "ValueError", "declined", 9, "")
    field, data, _ = encode_event(event)
    return field + b"\n" + data


def stored_entry() -> bytes:
    texts = (msgspec.json.encode(["retry", "ann", "the bank is back", ""]), ID, b"shop/charge", b"charge:7")
    return ENTRY.pack(1, 7, 8, 1, 4, 0, *map(len, texts)) + b"".join(texts)


def redis_record(data: bytes) -> None:
    assert decode_record(ID, data).id == ID


def redis_event(data: bytes) -> None:
    field, _, details = data.partition(b"\n")
    assert decode_event(ID, field, details).id == ID


def redis_audit(data: bytes) -> None:
    """An entry without its key still says who did what."""
    entry, redacted = decode_entry(data), decode_entry(redact_entry(data))
    assert (redacted.verb, redacted.who) == (entry.verb, entry.who)
    assert (redacted.id, redacted.scope, redacted.key, redacted.why) == (b"", "", "", "")


def declaration(data: bytes) -> None:
    found = decode_declaration(data)
    assert found is None or isinstance(found, StoredDeclaration)


DECLARATION = msgspec.json.encode(StoredDeclaration("charge:{n}", "ab", "24h", "rerun", 3, "60s"))

STORE_TARGETS: dict[str, Target] = {
    "redis_record": Target(redis_record, (StoreBroken,), (stored_record(),)),
    "redis_event": Target(redis_event, (StoreBroken,), (stored_event(),)),
    "redis_audit": Target(redis_audit, (StoreBroken,), (stored_entry(),)),
    "declaration": Target(declaration, (), (DECLARATION,)),
}
