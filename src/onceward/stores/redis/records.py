"""Encode requests and decode records in the layouts that `lua/record.lua` and `lua/apply.lua` describe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct, error
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
PENDING, ACQUIRED, OK = RecordState.PENDING, Verdict.ACQUIRED, Verdict.OK  # faster than looking up the enum members
AFTER_CRASH: Final = (AfterCrash.RERUN, AfterCrash.VERIFY, AfterCrash.PARK)
RESOLUTIONS: Final = {Resolution.APPLIED: 0, Resolution.NOT_APPLIED: 1, Resolution.ABANDON: 2}
CLAIM, RENEW, COMPLETE, FAIL, PARK, RELEASE, RESOLVE, FORGET = range(8)

ASK_FIRST, RELEASED, STORED, FINAL, LEASED, RETRIES, ENDS, RESULT = (1 << bit for bit in range(8))
KNOWN = SEEN = HELD = ASK_FIRST
FORCE = RELEASED

RECORD: Final = Struct("<4B2Q2I8Q4H8I")
REQUEST: Final = Struct("<5B2QI2Q4H8I")
CLAIM_HEAD: Final = Struct("<3B2x8xQI16x2H4x5I12x")  # like REQUEST, with zeros in the fields that a claim does not use
COMPLETE_HEAD: Final = Struct("<2BxBxQ12x2QH2xH2x16xI8xI")
ITEM: Final = Struct("<BcI")
GRANTED: Final = Struct("<6xQ")  # an item whose payload is the token
GRANT, DONE = b"AD"
ITEM_SIZE, GRANTED_SIZE = ITEM.size, GRANTED.size
TIME: Final = Struct("<Q")
pack_token: Final = TIME.pack

MAX_EXACT: Final = 2**53 - 1
"""Lua numbers are floating point and round above this. In µs that is the year 2255, or a duration of 285 years."""

MAX_CERTAIN: Final = 2**52
"""Below this, as an instant or a duration from now, the end of a window is stored exactly as requested, to the µs."""

MAX_INT64: Final = 2**63 - 1
MAX_ATTEMPTS: Final = 2**32 - 1

_json = msgspec.json.Encoder().encode
_mapping = msgspec.json.Decoder(dict[str, str]).decode


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


def _claim(one: ClaimRequest) -> bytes:
    try:
        key = one.key.encode()
    except UnicodeEncodeError:
        key = encode_text(one.key)
    nonce, fingerprint, arguments, note = one.nonce, one.fingerprint, b"", b""
    if one.arguments or one.note:
        arguments, note = encode_mapping(one.arguments), encode_mapping(one.note)
    head, scope, owner = _claim_head(
        (one.scope, one.owner, one.lease, one.after_crash, one.max_attempts),
        (len(nonce), len(fingerprint), len(key), len(arguments), len(note)),
    )
    return b"".join((head, nonce, fingerprint, scope, key, owner, arguments, note))


@lru_cache(4096)
def _claim_head(
    common: tuple[str, str, int | None, int, int], sizes: tuple[int, int, int, int, int]
) -> tuple[bytes, bytes, bytes]:
    """Return what claims of one function share if their keys have the same size: the head, the scope, the owner."""
    scope, owner = map(encode_text, common[:2])
    lease, after_crash, attempts = common[2:]
    flags, duration = (0, 0) if lease is None else (LEASED, min(lease, MAX_EXACT))
    nonce, fingerprint, key, arguments, note = sizes
    head = CLAIM_HEAD.pack(
        CLAIM, flags, after_crash, duration, min(attempts, MAX_ATTEMPTS),
        nonce, fingerprint, len(scope), key, len(owner), arguments, note,
    )  # fmt: skip
    return head, scope, owner


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
    digest: bytes = b"",
    note: bytes = b"",
    error_type: bytes = b"",
    error: bytes = b"",
    result: bytes = b"",
) -> bytes:
    window, value, slide = _window(validity)
    head = REQUEST.pack(
        verb, flags, choice, window, state, min(max(token, 0), MAX_EXACT), min(max(duration, 0), MAX_EXACT),
        min(max_attempts, MAX_ATTEMPTS), value, slide,
        len(nonce), 0, len(digest), 0, 0, 0, 0, 0, len(note), len(error_type), len(error), len(result),
    )  # fmt: skip
    return b"".join((head, nonce, digest, note, error_type, error, result))


@lru_cache(1024)
def _window(validity: Validity | None) -> tuple[int, int, int]:
    """Return the kind of window (0 endless, 1 a duration, 2 until an instant), its value, and how far it slides."""
    if validity is None:
        return 0, 0, 0
    slide = min(validity.slide, MAX_INT64)
    if validity.until is not None:
        return 2, min(max(validity.until, 0), MAX_INT64), slide
    if validity.lasting is not None:
        return 1, min(max(validity.lasting, 0), MAX_EXACT), slide
    return 0, 0, slide


def _renew(one: Renewal) -> bytes:
    return _request(RENEW, token=one.token, nonce=one.nonce, duration=one.lease, note=encode_mapping(one.note))


def _complete(one: Complete) -> bytes:
    """Encode like `_request`, but faster: every execution needs one."""
    nonce, digest, result, token = one.nonce, one.digest, one.result, one.token
    note = encode_mapping(one.note) if one.note else b""
    if not 0 <= token <= MAX_EXACT:
        token = 0  # no claim has this token
    before, after = _complete_head(
        (one.validity, one.stored, result is None),
        (len(nonce), len(digest), len(note), 0 if result is None else len(result)),
    )
    return b"".join((before, pack_token(token), after, nonce, digest, note, result or b""))


@lru_cache(4096)
def _complete_head(common: tuple[Validity, bool, bool], sizes: tuple[int, int, int, int]) -> tuple[bytes, bytes]:
    """Return what completions of one function share if their results have the same size: all but the token."""
    validity, stored, is_none = common
    window, value, slide = _window(validity)
    flags = STORED * stored + RESULT * (not is_none)
    if not window or 0 < value < MAX_CERTAIN:
        flags += HELD
    head = COMPLETE_HEAD.pack(COMPLETE, flags, window, 0, value, slide, *sizes)
    return head[:5], head[5 + TIME.size :]


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


def decode_record(id: bytes, data: bytes, at: int = 0, result: bytes | None = None) -> Record:
    """Decode the record at this offset. Pass `result` if the bytes do not contain it."""
    try:
        (
            min_reader, state, after_crash, flags, token, cycle, attempt, max_attempts, created_at, claimed_at,
            updated_at, renewed_at, lease_until, retry_at, valid_until, slide,
            nonce, fingerprint, digest, more, scope, key, owner, arguments, note, error_type, why, size,
        ) = RECORD.unpack_from(data, at)  # fmt: skip
        a = at + RECORD.size
        b = a + nonce
        c = b + fingerprint
        d = c + digest + more
        e = d + scope
        f = e + key
        g = f + owner
        h = g + arguments
        i = h + note
        j = i + error_type
        k = j + why
        if result is None and flags & RESULT:
            result = data[k : k + size]
        return Record(
            id,
            data[d:e].decode(),
            data[e:f].decode(),
            STATES[state],
            token,
            data[a:b],
            cycle,
            attempt,
            created_at,
            claimed_at,
            updated_at,
            renewed_at,
            lease_until if flags & LEASED else None,
            AFTER_CRASH[after_crash],
            max_attempts,
            data[b:c],
            _mapping(data[g:h]) if arguments else {},
            data[f:g].decode(),
            _mapping(data[h:i]) if note else {},
            flags & ASK_FIRST != 0,
            flags & RELEASED != 0,
            result if flags & RESULT else None,
            data[c : c + digest],
            flags & STORED != 0,
            data[i:j].decode() if error_type else "",
            data[j:k].decode() if why else "",
            flags & FINAL != 0,
            retry_at if flags & RETRIES else None,
            valid_until if flags & ENDS else None,
            slide,
            min_reader,
        )
    except (IndexError, UnicodeDecodeError, msgspec.DecodeError, error) as broken:
        return _newer_record(id, data, at, broken)


def _newer_record(id: bytes, data: bytes, at: int, broken: Exception) -> Record:
    """Return a placeholder for a record of a newer layout: PENDING without a lease, so that it is left alone."""
    if len(data) > at and data[at] > READER:
        token = TIME.unpack_from(data, at + 4)[0] if len(data) >= at + 12 else 0
        return Record(id, "", "", RecordState.PENDING, token, min_reader=data[at])
    raise StoreBroken("this record has invalid content", key=id.hex(), hint="was it edited by hand?") from broken


def granted_record(one: ClaimRequest, token: int, now: int) -> Record:
    """Return the record of a new claim that was granted as requested, like `cells.acquire_new_cycle`."""
    lease, attempts = one.lease, one.max_attempts
    if attempts > MAX_ATTEMPTS or (lease is not None and lease > MAX_EXACT):
        attempts, lease = min(MAX_ATTEMPTS, attempts), None if lease is None else min(MAX_EXACT, lease)
    scope, key, owner = one.scope, one.key, one.owner
    if not (key.isascii() and scope.isascii() and owner.isascii()):
        scope, key, owner = _as_stored(scope), _as_stored(key), _as_stored(owner)
    return Record(
        one.id, scope, key, PENDING, token, one.nonce, token, 1, now, now, now, now,
        None if lease is None else now + lease, one.after_crash, attempts, one.fingerprint, one.arguments,
        owner, one.note,
    )  # fmt: skip


def _as_stored(value: str) -> str:
    return encode_text(value).decode()


def decode_answer(one: Any, data: bytes) -> Answer | None:
    """Decode the fast script's answer to one request. None: it did not handle the request."""
    [now] = TIME.unpack_from(data)
    verdict, form, _ = ITEM.unpack_from(data, TIME.size)
    at = TIME.size + ITEM.size
    if form == b"A":
        return Answer(ACQUIRED, granted_record(one, TIME.unpack_from(data, at)[0], now), now)
    if form == b"D":
        return Answer(OK, None, now)
    if form == b"C":
        return Answer(VERDICTS[verdict], decode_record(one.id, data, at, one.result), now)
    return Answer(VERDICTS[verdict], decode_record(one.id, data, at), now) if form == b"R" else None


def decode_answers(ids: Sequence[bytes], requests: Sequence[Any], data: bytes) -> tuple[list[Answer | None], str]:
    """Decode the answers, with None where the fast script did not handle a request, and the first error if any."""
    [now] = TIME.unpack_from(data)
    at, error_text, done = TIME.size, "", Answer(OK, None, now)
    found: list[Answer | None] = []
    add, token_at = found.append, GRANTED.unpack_from
    for id, one in zip(ids, requests, strict=True):
        kind = data[at + 1]
        if kind == GRANT:  # this and the next case are nearly all answers
            add(Answer(ACQUIRED, granted_record(one, token_at(data, at)[0], now), now))
            at += GRANTED_SIZE
            continue
        if kind == DONE:
            add(done)
            at += ITEM_SIZE
            continue
        verdict, form, size = ITEM.unpack_from(data, at)
        at += ITEM.size
        answer = None
        if form == b"R":
            answer = Answer(VERDICTS[verdict], decode_record(id, data, at), now)
        elif form == b"C":
            answer = Answer(VERDICTS[verdict], decode_record(id, data, at, one.result), now)
        elif form == b"N":
            answer = Answer(VERDICTS[verdict], None, now)
        elif form == b"E":
            error_text = error_text or data[at : at + size].decode("utf-8", "replace")
        found.append(answer)
        at += size
    return found, error_text


def is_fast(one: AnyRequest) -> bool:
    """Return whether the fast script may be able to handle the request."""
    kind = type(one)
    return kind is ClaimRequest or (kind is Complete and not one.note)  # type: ignore[union-attr]  # it is a Complete
