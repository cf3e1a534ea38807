"""Parsers of bytes in a store that another program may have written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
from google.cloud.firestore_v1.types import document as documents
from google.protobuf.message import DecodeError

from onceward.client.compare_declarations import StoredDeclaration, decode_declaration
from onceward.errors import StoreBroken, VersionSkew
from onceward.protocol.history import HistoryEvent
from onceward.protocol.record import READER, Record, RecordState
from onceward.stores.firestore.calls import nest_fields
from onceward.stores.firestore.documents import HISTORY, Records
from onceward.stores.firestore.history import decode_events, encode_events
from onceward.stores.firestore.latest_documents import LatestDocuments
from onceward.stores.firestore.layout import REST, Layout
from onceward.stores.firestore.values import Value, number, text, time, value_of
from onceward.stores.redis.history import decode_event, encode_event
from onceward.stores.redis.latest import STATE, decode_mark, decode_state
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


EVENT = HistoryEvent(ID, 7, "failed", 1, 2, 3, 1, "host:1", "ValueError", "declined", 9, "")


def stored_event() -> bytes:
    field, data, _ = encode_event(EVENT)
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


def redis_state(data: bytes) -> None:
    found = decode_state(ID, data, 0)
    assert found is None or found.id == ID


def redis_mark(data: bytes) -> None:
    found = decode_mark(ID, data, 0)
    assert found is None or found.id == ID


STORED_STATE = STATE.pack(READER, 5, 9, 1, 2, 1, 4, 3) + b"\x00\x05" + b"m" + b"shop" + b"api" + b"value"
STORED_MARK = (5).to_bytes(8, "little") + (9).to_bytes(8, "little") + b"c" * 16 + b"message"


# ── documents of Firestore ──

RECORDS = Records(Layout())
ADDRESS: Any = SimpleNamespace(
    address=SimpleNamespace(marks_in="m", states_in="s", entity_ids=True, plain_mark_ids=True)
)
STATES = LatestDocuments(ADDRESS, Layout())
Document: Any = documents.Document.pb()


def document(fields: dict[Any, Any]) -> bytes:
    content: bytes = Document(fields=nest_fields(fields)).SerializeToString(deterministic=True)
    return content


def stored_document() -> bytes:
    """Return a document that is a record with a history."""
    record = Record(
        ID, "shop/charge", "charge:7", RecordState.FAILED, token=7,
        nonce=b"nn", created_at=1, lease_until=60, arguments={"cents": "ab"},
        owner="host:1", note={"gcs": "a"}, error_type="ValueError", error="declined", result=b"r", valid_until=9,
    )  # fmt: skip
    return document({**RECORDS.changes(None, record), HISTORY: Value(bytes_value=encode_events([EVENT]))})


def stored_latest() -> bytes:
    """Return a document that is both a state and a mark."""
    values = {
        "id": Value(bytes_value=ID), "scope": text("shop"), "entity": text("api"), "order": Value(bytes_value=b"5"),
        "value": Value(bytes_value=b"v"), "updated_at": time(5), "expires_at": time(9), "min_reader": number(READER),
        "content": Value(bytes_value=b"c" * 16), "trace": text("message"), "created_at": time(5),
    }  # fmt: skip
    paths = {**Layout().mark_paths(), **Layout().state_paths(), "min_reader": (REST, "min_reader")}
    return document({paths[name]: value for name, value in values.items()})


def fields_of(data: bytes) -> Any:
    try:
        return Document.FromString(data).fields
    except DecodeError:  # the client reports it: such bytes are no document
        return {}


def firestore_record(data: bytes) -> None:
    assert isinstance(RECORDS.record(ID, fields_of(data)).token, int)


def firestore_history(data: bytes) -> None:
    """The fields of a document, or the bytes of its history."""
    fields = fields_of(data)
    decode_events(ID, fields)
    decode_events(ID, {REST: value_of({"history": data})})


def firestore_state(data: bytes) -> None:
    assert isinstance(STATES.state(fields_of(data)).entity, str)


def firestore_mark(data: bytes) -> None:
    assert STATES.dedup_mark(ID, fields_of(data)).id == ID


def declaration(data: bytes) -> None:
    found = decode_declaration(data)
    assert found is None or isinstance(found, StoredDeclaration)


DECLARATION = msgspec.json.encode(StoredDeclaration("charge:{n}", "ab", "24h", "rerun", 3, "60s"))

STORE_TARGETS: dict[str, Target] = {
    "redis_record": Target(redis_record, (StoreBroken,), (stored_record(),)),
    "redis_event": Target(redis_event, (StoreBroken,), (stored_event(),)),
    "redis_audit": Target(redis_audit, (StoreBroken,), (stored_entry(),)),
    "redis_state": Target(redis_state, (StoreBroken, VersionSkew), (STORED_STATE,)),
    "redis_mark": Target(redis_mark, (StoreBroken,), (STORED_MARK,)),
    "firestore_record": Target(firestore_record, (StoreBroken,), (stored_document(),)),
    "firestore_history": Target(firestore_history, (StoreBroken,), (stored_document(), encode_events([EVENT]))),
    "firestore_state": Target(firestore_state, (StoreBroken,), (stored_latest(),)),
    "firestore_mark": Target(firestore_mark, (StoreBroken,), (stored_latest(),)),
    "declaration": Target(declaration, (), (DECLARATION,)),
}
