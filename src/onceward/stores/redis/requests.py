"""Encode requests for `lua/apply.lua`. The files of the verbs, `claim.lua` and `change.lua`, have the other half.

What all requests of an operation have in common is encoded once. All requests of a call are sent as one argument:
hiredis needs five times as long to pack each part of a request as an argument of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, Final

import msgspec

from onceward.protocol.cells import KEEP_UNFINISHED, attempts_used_up
from onceward.protocol.record import AfterCrash
from onceward.protocol.requests import (
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
)
from onceward.protocol.transitions import CLOCK_MARGIN

from .records import MAX_ATTEMPTS, MAX_EXACT, MAX_INT64, NUMBERS, PENDING, StoredFields, as_stored, encode_text

RESOLUTIONS: Final = {Resolution.APPLIED: 0, Resolution.NOT_APPLIED: 1, Resolution.ABANDON: 2}

NEW_FLAGS: Final = (False, False, True, False)  # ask_first, released, stored, final
NEW_TIMES: Final = (False, False, 0)  # retry_at, valid_until, slide

VERB: Final = "B{}sI"  # its length, the verb, and the size of what follows: see `lua/apply.lua`
CLAIM: Final = Struct("<" + VERB.format(5) + "2HIB")
COMPLETION: Final = Struct("<" + VERB.format(8) + "Q3B2HI")
CHANGE: Final = Struct("<3H3I")
CLAIM_SIZES: Final = CLAIM.size - 10  # without the verb and the size itself
COMPLETION_SIZES: Final = COMPLETION.size - 13

_json = msgspec.json.Encoder().encode
_encode = msgspec.msgpack.Encoder().encode

FIELDS_HEAD: Final = b"\xdc" + len(StoredFields.__struct_fields__).to_bytes(2, "big")  # of a MessagePack array
EMPTY: Final = _encode("")
NO_RESULT: Final = EMPTY + EMPTY + _encode(False)  # noqa: FBT003 (error_type, error, has_result)
ONLY_A_KEY: Final = EMPTY + EMPTY + NO_RESULT  # neither arguments nor a note

Parts = Sequence[bytes]
"""One request, in parts: the caller joins the parts of all requests."""


def encode_mapping(values: dict[str, str]) -> bytes:
    if not values:
        return b""
    try:
        return _json(values)
    except UnicodeEncodeError:
        return _json({encode_text(name).decode(): encode_text(value).decode() for name, value in values.items()})


def _claim(one: ClaimRequest) -> Parts:
    before_key, owner, lifetime = _claim_parts(one.scope, one.lease, one.after_crash, one.max_attempts, one.owner)
    key = _encode(one.key if one.key.isascii() else as_stored(one.key))
    if one.arguments or one.note:
        arguments, note = encode_mapping(one.arguments).decode(), encode_mapping(one.note).decode()
        end = _encode(arguments) + _encode(note) + NO_RESULT
    else:
        end = ONLY_A_KEY
    nonce, fingerprint = one.nonce, one.fingerprint
    fields_size = len(before_key) + len(key) + len(owner) + len(end)
    size = CLAIM_SIZES + len(nonce) + len(fingerprint) + fields_size + len(lifetime)
    head = CLAIM.pack(5, b"claim", size, len(nonce), len(fingerprint), fields_size, len(lifetime))
    return head, nonce, fingerprint, before_key, key, owner, end, lifetime


@lru_cache(1024)
def _claim_parts(
    scope: str, lease: int | None, after_crash: AfterCrash, max_attempts: int, owner: str
) -> tuple[bytes, bytes, bytes]:
    """Return the fields of a new record up to its key, the field of its owner, and its lifetime."""
    max_attempts = min(max_attempts, MAX_ATTEMPTS)
    lease_until = False if lease is None else min(lease, MAX_EXACT)
    before_key = (
        0, 0, PENDING, after_crash, 1, max_attempts, *NEW_FLAGS, 0, 0, 0, 0, 0, lease_until, *NEW_TIMES,
        0, 0, 0, as_stored(scope),
    )  # fmt: skip
    encoded = FIELDS_HEAD + b"".join([_encode(value) for value in before_key])
    return encoded, _encode(as_stored(owner)), _lifetime(lease, after_crash, max_attempts)


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
) -> Parts:
    numbers = _encode((
        min(max(token, 0), MAX_EXACT), state, resolution, min(max(duration, 0), MAX_EXACT),
        min(max_attempts, MAX_ATTEMPTS), *_window(validity), stored, final, known, force, seen, result is not None,
    ))  # fmt: skip
    parts = (
        numbers,
        nonce,
        digest,
        encode_mapping(note) if note else b"",
        encode_text(error_type),
        encode_text(error),
    )
    content = b"".join((CHANGE.pack(*map(len, parts)), *parts, result or b""))
    return b"%c%b" % (len(verb), verb), len(content).to_bytes(4, "little"), content


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


def _renew(one: Renewal) -> Parts:
    return _change(b"renew", token=one.token, nonce=one.nonce, duration=one.lease, note=one.note)


@lru_cache(1024)
def _encoded_window(validity: Validity) -> bytes:
    return _encode(_window(validity))


def _complete(one: Complete) -> Parts:
    token, window, nonce, digest = one.token, _encoded_window(one.validity), one.nonce, one.digest
    if not 0 <= token <= MAX_EXACT:
        token = 0  # no owner has it
    note = encode_mapping(one.note) if one.note else b""
    result = one.result or b""
    size = COMPLETION_SIZES + len(window) + len(nonce) + len(digest) + len(note) + len(result)
    head = COMPLETION.pack(
        8, b"complete", size, token, one.stored, one.result is not None,
        len(window), len(nonce), len(digest), len(note),
    )  # fmt: skip
    return head, window, nonce, digest, note, result


def _fail(one: Fail) -> Parts:
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


def _park(one: Park) -> Parts:
    return _change(b"park", token=one.token, nonce=one.nonce, note=one.note, error_type=one.error_type, error=one.error)


def _release(one: Release) -> Parts:
    return _change(b"release", token=one.token, nonce=one.nonce)


def _resolve(one: Resolve) -> Parts:
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


def _forget(one: Forget) -> Parts:
    if one.seen is None:
        return _change(b"forget", force=one.force)
    return _change(b"forget", force=one.force, seen=True, token=one.seen.token, state=NUMBERS[one.seen.state])


ENCODERS: Final[dict[type, Callable[[Any], Parts]]] = {
    ClaimRequest: _claim,
    Renewal: _renew,
    Complete: _complete,
    Fail: _fail,
    Park: _park,
    Release: _release,
    Resolve: _resolve,
    Forget: _forget,
}
