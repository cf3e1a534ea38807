"""Encode requests as arguments of `lua/apply.lua`, and decode its answers and stored records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct, error
from typing import Any, Final

import msgspec

from onceward.errors import StoreBroken
from onceward.protocol.cells import KEEP_UNFINISHED, attempts_used_up
from onceward.protocol.record import READER, AfterCrash, Record, RecordState
from onceward.protocol.requests import (
    Answer,
    ClaimRequest,
    Complete,
    ExpectedRecord,
    Fail,
    Park,
    Release,
    Renewal,
    Resolution,
    Resolve,
    Validity,
    Verdict,
)
from onceward.protocol.transitions import CLOCK_MARGIN

STATES: Final = (RecordState.FREE, RecordState.PENDING, RecordState.COMPLETED, RecordState.FAILED, RecordState.PARKED)
NUMBERS: Final = {state: number for number, state in enumerate(STATES)}
PENDING: Final = NUMBERS[RecordState.PENDING]
VERDICTS: Final = {verdict.name.encode(): verdict for verdict in Verdict}
ERROR: Final = b"ERROR"
AFTER_CRASH: Final = (AfterCrash.RERUN, AfterCrash.VERIFY, AfterCrash.PARK)
RESOLUTIONS: Final = {Resolution.APPLIED: 0, Resolution.NOT_APPLIED: 1, Resolution.ABANDON: 2}

NEW_FLAGS: Final = (False, False, True, False)  # ask_first, released, stored, final
NEW_TIMES: Final = (False, False, 0)  # retry_at, valid_until, slide
NO_RESULT: Final = ("", "", False)  # error_type, error, has_result

HEAD: Final = Struct("<B2Q3HI")
VERSION_AND_TOKEN: Final = Struct("<BQ")  # in the same place in every later version
TIME: Final = Struct("<Q")

MAX_EXACT: Final = 2**53 - 1
"""Lua numbers are floating point and round above this. In µs that is the year 2255, or a duration of 285 years."""

MAX_INT64: Final = 2**63 - 1
MAX_ATTEMPTS: Final = 2**32 - 1

_json = msgspec.json.Encoder().encode
_mapping = msgspec.json.Decoder(dict[str, str]).decode
_encode = msgspec.msgpack.Encoder().encode

Arguments = Sequence[bytes]
"""One request, as arguments of the script."""


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


# ── requests ────────────────────────────────────────────────────────────────────────────────────────────────────────


def encode_text(value: str) -> bytes:
    """Encode as UTF-8, escaping lone surrogates: an error's text may contain any characters and must be recordable."""
    return value.encode("utf-8", "backslashreplace")


def encode_mapping(values: dict[str, str]) -> bytes:
    if not values:
        return b""
    try:
        return _json(values)
    except UnicodeEncodeError:
        return _json({encode_text(name).decode(): encode_text(value).decode() for name, value in values.items()})


def _claim(one: ClaimRequest) -> Arguments:
    lease = False if one.lease is None else min(one.lease, MAX_EXACT)
    max_attempts = min(one.max_attempts, MAX_ATTEMPTS)
    arguments = encode_mapping(one.arguments).decode() if one.arguments else ""
    note = encode_mapping(one.note).decode() if one.note else ""
    fields = StoredFields(
        0, 0, PENDING, one.after_crash, 1, max_attempts, *NEW_FLAGS, 0, 0, 0, 0, 0, lease, *NEW_TIMES,
        0, 0, 0, one.scope, one.key, one.owner, arguments, note, *NO_RESULT,
    )  # fmt: skip
    try:
        encoded = _encode(fields)
    except UnicodeEncodeError:
        fields.scope, fields.key, fields.owner = _as_stored(one.scope), _as_stored(one.key), _as_stored(one.owner)
        encoded = _encode(fields)
    return b"claim", one.nonce, one.fingerprint, encoded, _lifetime(one.lease, one.after_crash, max_attempts)


@lru_cache(1024)
def _lifetime(lease: int | None, after_crash: AfterCrash, max_attempts: int) -> bytes:
    """Return after how many milliseconds the server may delete a new record that stays unfinished. Empty: never.

    The same rule as `deletable_at` in `lua/fields.lua`.
    """
    if lease is None or after_crash is not AfterCrash.RERUN or attempts_used_up(1, max_attempts):
        return b""
    return b"%d" % ((min(lease, MAX_EXACT) + KEEP_UNFINISHED + CLOCK_MARGIN) // 1000 + 1)


def _change(
    verb: bytes,
    *,
    token: int = 0,
    state: int = 0,
    resolution: int = 0,
    duration: int = 0,
    max_attempts: int = 0,
    validity: Validity | None = None,
    stored: bool = False,
    final: bool = False,
    known: bool = False,
    force: bool = False,
    seen: bool = False,
    nonce: bytes = b"",
    digest: bytes = b"",
    note: dict[str, str] | None = None,
    error_type: str = "",
    error: str = "",
    result: bytes | None = None,
) -> Arguments:
    numbers = (
        min(max(token, 0), MAX_EXACT), state, resolution, min(max(duration, 0), MAX_EXACT),
        min(max_attempts, MAX_ATTEMPTS), *_window(validity), stored, final, known, force, seen, result is not None,
    )  # fmt: skip
    return (
        verb,
        _encode(numbers),
        nonce,
        digest,
        encode_mapping(note) if note else b"",
        encode_text(error_type),
        encode_text(error),
        result or b"",
    )


@lru_cache(1024)
def _window(validity: Validity | None) -> tuple[int, int | str, int | str]:
    """Return the kind of window (0 endless, 1 a duration, 2 until an instant), its value, and how far it slides."""
    if validity is None:
        return 0, 0, 0
    slide = _exact(validity.slide)
    if validity.until is not None:
        return 2, _exact(validity.until), slide
    if validity.lasting is not None:
        return 1, min(max(validity.lasting, 0), MAX_EXACT), slide
    return 0, 0, slide


def _exact(value: int) -> int | str:
    """Return the number, or its decimal text if Lua would round it."""
    value = min(max(value, 0), MAX_INT64)
    return value if value <= MAX_EXACT else str(value)


def _renew(one: Renewal) -> Arguments:
    return _change(b"renew", token=one.token, nonce=one.nonce, duration=one.lease, note=one.note)


def _complete(one: Complete) -> Arguments:
    numbers = (min(max(one.token, 0), MAX_EXACT), *_window(one.validity), one.stored, one.result is not None)
    return b"complete", _encode(numbers), one.nonce, one.digest, encode_mapping(one.note), one.result or b""


def _fail(one: Fail) -> Arguments:
    return _change(
        b"fail",
        token=one.token,
        nonce=one.nonce,
        duration=one.retry_in,
        max_attempts=one.max_attempts,
        validity=one.validity,
        final=one.final,
        known=one.known,
        note=one.note,
        error_type=one.error_type,
        error=one.error,
    )


def _park(one: Park) -> Arguments:
    return _change(b"park", token=one.token, nonce=one.nonce, note=one.note, error_type=one.error_type, error=one.error)


def _release(one: Release) -> Arguments:
    return _change(b"release", token=one.token, nonce=one.nonce)


def _resolve(one: Resolve) -> Arguments:
    return _change(
        b"resolve",
        token=one.token_seen,
        state=NUMBERS[one.state_seen],
        resolution=RESOLUTIONS[one.resolution],
        validity=one.validity,
        stored=one.stored,
        force=one.force,
        digest=one.digest,
        note=one.note,
        result=one.result,
    )


class Forget(msgspec.Struct, frozen=True, gc=False):
    """Ask to free a key, if its record is still the one that was seen."""

    id: bytes
    seen: ExpectedRecord | None
    force: bool


def _forget(one: Forget) -> Arguments:
    if one.seen is None:
        return _change(b"forget", force=one.force)
    return _change(b"forget", force=one.force, seen=True, token=one.seen.token, state=NUMBERS[one.seen.state])


ENCODERS: Final[dict[type, Callable[[Any], Arguments]]] = {
    ClaimRequest: _claim,
    Renewal: _renew,
    Complete: _complete,
    Fail: _fail,
    Park: _park,
    Release: _release,
    Resolve: _resolve,
    Forget: _forget,
}


# ── answers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


_decode_fields = msgspec.msgpack.Decoder(StoredFields).decode


def decode_record(id: bytes, data: bytes) -> Record:
    """Decode a record as it is stored."""
    if data[0] > READER:
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
    except (IndexError, error, msgspec.MsgspecError) as broken:
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


def _broken_record(id: bytes) -> StoreBroken:
    return StoreBroken("this record has invalid content", key=id.hex(), hint="was it edited by hand?")


def decode_read(id: bytes, data: bytes | None, now: int) -> Answer:
    """Return the answer to a read. None: there is no record."""
    return Answer(Verdict.ABSENT, None, now) if data is None else Answer(Verdict.OK, decode_record(id, data), now)


def granted_record(one: ClaimRequest, token: int, now: int) -> Record:
    """Return the record of a new claim that was granted as requested, like `cells.acquire_new_cycle`."""
    lease = None if one.lease is None else min(one.lease, MAX_EXACT)
    return Record(
        one.id, _as_stored(one.scope), _as_stored(one.key), RecordState.PENDING, token, one.nonce, token, 1,
        now, now, now, now, None if lease is None else now + lease, one.after_crash,
        min(one.max_attempts, MAX_ATTEMPTS), one.fingerprint, one.arguments, _as_stored(one.owner), one.note,
    )  # fmt: skip


def _as_stored(value: str) -> str:
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
