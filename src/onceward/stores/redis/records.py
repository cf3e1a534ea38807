"""Encode requests and decode records and answers in the layouts that `lua/record.lua` and `lua/apply.lua` describe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from struct import error as struct_error
from typing import Any, Final

import msgspec

from onceward.errors import StoreBroken
from onceward.protocol.record import READER, AfterCrash, Record, RecordState
from onceward.protocol.requests import (
    Answer,
    AnyRequest,
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

STATES: Final = (RecordState.FREE, RecordState.PENDING, RecordState.COMPLETED, RecordState.FAILED, RecordState.PARKED)
NUMBERS: Final = {state: number for number, state in enumerate(STATES)}
VERDICTS: Final = (
    Verdict.ACQUIRED, Verdict.REPLAY, Verdict.RUNNING, Verdict.MISMATCH, Verdict.FAILED, Verdict.PARKED,
    Verdict.SETTLED, Verdict.OK, Verdict.LOST, Verdict.CONFLICT, Verdict.REFUSED, Verdict.ABSENT, Verdict.SKEW,
)  # fmt: skip
AFTER_CRASH: Final = (AfterCrash.RERUN, AfterCrash.VERIFY, AfterCrash.PARK)
RESOLUTIONS: Final = {Resolution.APPLIED: 0, Resolution.NOT_APPLIED: 1, Resolution.ABANDON: 2}
CLAIM, RENEW, COMPLETE, FAIL, PARK, RELEASE, RESOLVE, FORGET = range(8)
ERROR: Final = 255

ASK_FIRST, RELEASED, STORED, FINAL, LEASED, RETRIES, ENDS, RESULT = (1 << bit for bit in range(8))
KNOWN = SEEN = ASK_FIRST
FORCE = RELEASED

HEAD: Final = Struct("<BQB")
TIME: Final = Struct("<Q")
SIZE: Final = Struct("<B")

MAX_EXACT: Final = 2**53 - 1
"""Lua numbers are floating point and round above this. In µs that is the year 2255, or a duration of 285 years."""

MAX_INT64: Final = 2**63 - 1
MAX_ATTEMPTS: Final = 2**32 - 1

_json = msgspec.json.Encoder().encode
_mapping = msgspec.json.Decoder(dict[str, str]).decode
_encode_numbers = msgspec.msgpack.Encoder().encode
_decode_numbers: Callable[[bytes], list[Any]] = msgspec.msgpack.Decoder(list[int | str]).decode


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


def _request(
    verb: int,
    *,
    flags: int = 0,
    choice: int = 0,
    state: int = 0,
    token: int = 0,
    duration: int = 0,
    max_attempts: int = 0,
    validity: Validity | None = None,
    nonce: bytes = b"",
    fingerprint: bytes = b"",
    digest: bytes = b"",
    scope: bytes = b"",
    key: bytes = b"",
    owner: bytes = b"",
    arguments: bytes = b"",
    note: bytes = b"",
    error_type: bytes = b"",
    error: bytes = b"",
    result: bytes = b"",
) -> bytes:
    numbers = _encode_numbers((
        verb, flags, choice, state, min(max(token, 0), MAX_EXACT), min(max(duration, 0), MAX_EXACT),
        min(max_attempts, MAX_ATTEMPTS), *_window(validity),
        len(nonce), len(fingerprint), len(digest), 0, len(scope), len(key), len(owner), len(arguments), len(note),
        len(error_type), len(error), len(result),
    ))  # fmt: skip
    return b"".join((
        SIZE.pack(len(numbers)), numbers,
        nonce, fingerprint, digest, scope, key, owner, arguments, note, error_type, error, result,
    ))  # fmt: skip


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


def _claim(one: ClaimRequest) -> bytes:
    return _request(
        CLAIM,
        flags=0 if one.lease is None else LEASED,
        choice=one.after_crash,
        duration=one.lease or 0,
        max_attempts=one.max_attempts,
        nonce=one.nonce,
        fingerprint=one.fingerprint,
        scope=encode_text(one.scope),
        key=encode_text(one.key),
        owner=encode_text(one.owner),
        arguments=encode_mapping(one.arguments),
        note=encode_mapping(one.note),
    )


def _renew(one: Renewal) -> bytes:
    return _request(RENEW, token=one.token, nonce=one.nonce, duration=one.lease, note=encode_mapping(one.note))


def _complete(one: Complete) -> bytes:
    return _request(
        COMPLETE,
        flags=STORED * one.stored + RESULT * (one.result is not None),
        token=one.token,
        nonce=one.nonce,
        validity=one.validity,
        digest=one.digest,
        note=encode_mapping(one.note),
        result=one.result or b"",
    )


def _fail(one: Fail) -> bytes:
    return _request(
        FAIL,
        flags=FINAL * one.final + KNOWN * one.known,
        token=one.token,
        nonce=one.nonce,
        duration=one.retry_in,
        max_attempts=one.max_attempts,
        validity=one.validity,
        note=encode_mapping(one.note),
        error_type=encode_text(one.error_type),
        error=encode_text(one.error),
    )


def _park(one: Park) -> bytes:
    return _request(
        PARK,
        token=one.token,
        nonce=one.nonce,
        note=encode_mapping(one.note),
        error_type=encode_text(one.error_type),
        error=encode_text(one.error),
    )


def _release(one: Release) -> bytes:
    return _request(RELEASE, token=one.token, nonce=one.nonce)


def _resolve(one: Resolve) -> bytes:
    return _request(
        RESOLVE,
        flags=STORED * one.stored + RESULT * (one.result is not None) + FORCE * one.force,
        choice=RESOLUTIONS[one.resolution],
        state=NUMBERS[one.state_seen],
        token=one.token_seen,
        validity=one.validity,
        digest=one.digest,
        note=encode_mapping(one.note),
        result=one.result or b"",
    )


ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    ClaimRequest: _claim,
    Renewal: _renew,
    Complete: _complete,
    Fail: _fail,
    Park: _park,
    Release: _release,
    Resolve: _resolve,
}


def encode_request(one: AnyRequest) -> bytes:
    return ENCODERS[type(one)](one)


def encode_forget(seen: ExpectedRecord | None, *, force: bool) -> bytes:
    if seen is None:
        return _request(FORGET, flags=FORCE * force)
    return _request(FORGET, flags=SEEN + FORCE * force, token=seen.token, state=NUMBERS[seen.state])


# ── answers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def decode_record(id: bytes, data: bytes) -> Record:
    """Decode a record. A record whose result was cut off has an empty result."""
    try:
        min_reader, token, size = HEAD.unpack_from(data)
        at = HEAD.size + size
        (
            state, after_crash, flags, cycle, attempt, max_attempts, created_at, claimed_at, updated_at, renewed_at,
            lease_until, retry_at, valid_until, slide, *lengths,
        ) = _decode_numbers(data[HEAD.size : at])  # fmt: skip
        texts = []
        for length in lengths:
            texts.append(data[at : at + length])
            at += length
        nonce, fingerprint, digest, _, scope, key, owner, arguments, note, error_type, error, result = texts
        return Record(
            id,
            scope.decode(),
            key.decode(),
            STATES[state],
            token,
            nonce,
            token + cycle,
            attempt,
            token + created_at,
            token + claimed_at,
            token + updated_at,
            token + renewed_at,
            token + lease_until if flags & LEASED else None,
            AFTER_CRASH[after_crash],
            max_attempts,
            fingerprint,
            _mapping(arguments) if arguments else {},
            owner.decode(),
            _mapping(note) if note else {},
            flags & ASK_FIRST != 0,
            flags & RELEASED != 0,
            result if flags & RESULT else None,
            digest,
            flags & STORED != 0,
            error_type.decode(),
            error.decode(),
            flags & FINAL != 0,
            token + retry_at if flags & RETRIES else None,
            _valid_until(token, valid_until) if flags & ENDS else None,
            int(slide),
            min_reader,
        )
    except (IndexError, TypeError, ValueError, msgspec.DecodeError, struct_error) as broken:
        return _newer_record(id, data, broken)


def decode_read(id: bytes, data: bytes | None, now: int) -> Answer:
    """Return the answer to a read. None: there is no record."""
    return Answer(Verdict.ABSENT, None, now) if data is None else Answer(Verdict.OK, decode_record(id, data), now)


def _valid_until(token: int, value: int | str) -> int:
    """Return the end of the window: relative to the token, or an absolute number as text if Lua would round it."""
    return token + value if isinstance(value, int) else int(value)


def _newer_record(id: bytes, data: bytes, broken: Exception) -> Record:
    """Return a placeholder for a record of a newer layout: PENDING without a lease, so that it is left alone."""
    if len(data) >= HEAD.size and data[0] > READER:
        min_reader, token, _ = HEAD.unpack_from(data)
        return Record(id, "", "", RecordState.PENDING, token, min_reader=min_reader)
    raise StoreBroken("this record has invalid content", key=id.hex(), hint="was it edited by hand?") from broken


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


def decode_answers(ids: Sequence[bytes], requests: Sequence[Any], reply: list[Any]) -> tuple[list[Answer], str]:
    """Decode the reply of `apply`. If requests failed, also return the text of the first error."""
    now, error_text = reply[0], ""
    answers: list[Answer] = []
    for id, one, verdict, payload in zip(ids, requests, reply[1::2], reply[2::2], strict=True):
        if verdict == ERROR:
            error_text = error_text or payload.decode("utf-8", "replace")
        elif payload is None:
            answers.append(Answer(VERDICTS[verdict], None, now))
        elif isinstance(payload, int):
            answers.append(Answer(VERDICTS[verdict], granted_record(one, payload, now), now))
        else:
            answers.append(Answer(VERDICTS[verdict], decode_record(id, payload), now))
    return answers, error_text
