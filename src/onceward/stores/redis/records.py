"""Decode stored records, and the answers of `lua/apply.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import Any, Final

import msgspec

from onceward.errors import RecordBroken
from onceward.protocol.record import READER, AfterCrash, Record, RecordState
from onceward.protocol.requests import Answer, ClaimRequest, Verdict

STATES: Final = (RecordState.FREE, RecordState.PENDING, RecordState.COMPLETED, RecordState.FAILED, RecordState.PARKED)
NUMBERS: Final = {state: number for number, state in enumerate(STATES)}
PENDING: Final = NUMBERS[RecordState.PENDING]
VERDICTS: Final = {verdict.name.encode(): verdict for verdict in Verdict}
ERROR: Final = b"ERROR"
AFTER_CRASH: Final = (AfterCrash.RERUN, AfterCrash.VERIFY, AfterCrash.PARK)

HEAD: Final = Struct("<B2Q3HI")
NEWEST: Final = bytes([READER])  # the first byte of the newest records that this version can read
VERSION_AND_TOKEN: Final = Struct("<BQ")  # in the same place in every later version
TIME: Final = Struct("<Q")

MAX_EXACT: Final = 2**53 - 1
"""Lua numbers are floating point and round above this. In µs that is the year 2255, or a duration of 285 years."""

MAX_INT64: Final = 2**63 - 1
MAX_ATTEMPTS: Final = 2**32 - 1

INVALID: Final = (IndexError, ValueError, error, msgspec.MsgspecError)
"""What decoding raises if another program wrote the bytes."""

EDITED: Final = "was it edited by hand?"

_mapping = msgspec.json.Decoder(dict[str, str]).decode


class StoredFields(msgspec.Struct, array_like=True, gc=False):
    """The MessagePack array in a record, in the order of `lua/record.lua`. Times are relative to the token."""

    token: int
    min_reader: int
    state: int
    after_crash: int
    attempt: int
    max_attempts: int
    ask_first: bool
    released: bool
    stored: bool
    final: bool
    cycle: int
    created_at: int
    claimed_at: int
    updated_at: int
    renewed_at: int
    lease_until: int | bool
    retry_at: int | bool
    valid_until: int | str | bool
    slide: int | str
    nonce: int
    fingerprint: int
    digest: int
    scope: str
    key: str
    owner: str
    arguments: str
    note: str
    error_type: str
    error: str
    has_result: bool


_decode_fields = msgspec.msgpack.Decoder(StoredFields).decode


def decode_record(id: bytes, data: bytes) -> Record:
    """Decode a record as it is stored."""
    if data[:1] > NEWEST:
        return _newer_record(id, data)
    try:
        min_reader, token, _, nonce_size, fingerprint_size, digest_size, fields_size = HEAD.unpack_from(data)
        fingerprint_at = HEAD.size + nonce_size
        digest_at = fingerprint_at + fingerprint_size
        fields_at = digest_at + digest_size
        result_at = fields_at + fields_size
        fields = _decode_fields(data[fields_at:result_at])
        return Record(
            id,
            fields.scope,
            fields.key,
            STATES[fields.state],
            token,
            data[HEAD.size : fingerprint_at],
            token + fields.cycle,
            fields.attempt,
            token + fields.created_at,
            token + fields.claimed_at,
            token + fields.updated_at,
            token + fields.renewed_at,
            None if fields.lease_until is False else token + fields.lease_until,
            AFTER_CRASH[fields.after_crash],
            fields.max_attempts,
            data[fingerprint_at:digest_at],
            _mapping(fields.arguments) if fields.arguments else {},
            fields.owner,
            _mapping(fields.note) if fields.note else {},
            fields.ask_first,
            fields.released,
            data[result_at:] if fields.has_result else None,
            data[digest_at:fields_at],
            fields.stored,
            fields.error_type,
            fields.error,
            fields.final,
            None if fields.retry_at is False else token + fields.retry_at,
            _end(fields.valid_until, token),
            int(fields.slide),
            min_reader,
        )
    except INVALID as broken:
        raise _broken_record(id) from broken


def _end(valid_until: int | str | bool, token: int) -> int | None:  # noqa: FBT001 (False: the window never ends)
    if valid_until is False:
        return None
    return int(valid_until) if isinstance(valid_until, str) else token + valid_until


def _newer_record(id: bytes, data: bytes) -> Record:
    """Return a placeholder for a record of a newer layout: PENDING without a lease, so that it is left alone."""
    if len(data) < VERSION_AND_TOKEN.size:
        raise _broken_record(id)
    min_reader, token = VERSION_AND_TOKEN.unpack_from(data)
    return Record(id, "", "", RecordState.PENDING, token, min_reader=min_reader)


def _broken_record(id: bytes) -> RecordBroken:
    return RecordBroken("this record has invalid content", key=id.hex(), hint=EDITED)


def decode_read(id: bytes, data: bytes | None, now: int) -> Answer:
    """Return the answer to a read. None: there is no record."""
    return Answer(Verdict.ABSENT, None, now) if data is None else Answer(Verdict.OK, decode_record(id, data), now)


def granted_record(one: ClaimRequest, token: int, now: int) -> Record:
    """Return the record of a new claim that was granted as requested, like `cells.acquire_new_cycle`."""
    scope, key, owner = one.scope, one.key, one.owner
    if not (scope.isascii() and key.isascii() and owner.isascii()):
        scope, key, owner = as_stored(scope), as_stored(key), as_stored(owner)
    lease, max_attempts = one.lease, one.max_attempts
    if (lease is not None and lease > MAX_EXACT) or max_attempts > MAX_ATTEMPTS:
        lease, max_attempts = None if lease is None else min(lease, MAX_EXACT), min(max_attempts, MAX_ATTEMPTS)
    return Record(
        one.id, scope, key, STATES[PENDING], token, one.nonce, token, 1, now, now, now, now,
        None if lease is None else now + lease, one.after_crash, max_attempts,
        one.fingerprint, one.arguments, owner, one.note,
    )  # fmt: skip


def encode_text(value: str) -> bytes:
    """Encode as UTF-8, escaping lone surrogates: an error's text may contain any characters and must be recordable."""
    return value.encode("utf-8", "backslashreplace")


def as_stored(value: str) -> str:
    return value if value.isascii() else encode_text(value).decode()


def decode_answers(requests: Sequence[Any], reply: list[Any]) -> tuple[list[Answer], str]:
    """Decode the reply of `apply`. If requests failed, also return the text of the first error."""
    now, error_text = reply[0], ""
    answers: list[Answer] = []
    for one, verdict, payload in zip(requests, reply[1::2], reply[2::2], strict=True):
        if verdict == ERROR:
            error_text = error_text or payload.decode("utf-8", "replace")
        elif payload is None:
            answers.append(Answer(VERDICTS[verdict], None, now))
        elif isinstance(payload, int):
            answers.append(Answer(VERDICTS[verdict], granted_record(one, payload, now), now))
        else:
            answers.append(Answer(VERDICTS[verdict], decode_record(one.id, payload), now))
    return answers, error_text
