"""Map keys and outcomes to HTTP, following draft-ietf-httpapi-idempotency-key-header. No I/O: the adapters do that.

| situation                                            | response                                                |
|------------------------------------------------------|---------------------------------------------------------|
| required key missing, or key malformed               | 400                                                     |
| no principal: the request is not authenticated       | 401, checked before anything else                       |
| body over the limit                                  | 413                                                     |
| done before, response stored                         | the stored response, and `Idempotency-Replayed: true`   |
| done before, response not stored                     | 410: the work is not repeated, and its response is lost |
| another request with this key is running             | 409 and `Retry-After`                                   |
| same key, different request                          | 422, and what differs                                   |
| failed before and must not be retried (yet); parked  | 409                                                     |
| done, but the store did not confirm it               | 503 and `Retry-After`; 409 if another owner took over   |
| the store is down, or this process is stopping       | 503 and `Retry-After`                                   |

Every response of the application is stored, except 401, 403, 408, 425, 429 and 5xx (`retry_statuses=`): these free the
key, so that the client may retry the same request. 307 and 308 redirect the request to another path: they release the
key as if it had never been claimed.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from onceward import errors
from onceward.errors import InvalidKey, MissingKey, OncewardError
from onceward.keys.canonical import ENCODER_VERSION
from onceward.keys.fingerprint import FINGERPRINT_BYTES
from onceward.protocol.outcome import Failed, Mismatch, Outcome, Parked, Replayed, Running, Unknown
from onceward.protocol.policy import SECOND
from onceward.protocol.window import Window

KEY_HEADER: Final = b"idempotency-key"
REPLAYED_HEADER: Final = (b"idempotency-replayed", b"true")
WINDOW_HEADER: Final = b"idempotency-window"
PROBLEM_CONTENT_TYPE: Final = b"application/problem+json"
MAX_LENGTH_DIGITS: Final = 18
"""A Content-Length with more digits cannot be a real number of bytes."""

Header = tuple[bytes, bytes]
Headers = Sequence[Header]

# ── the key ─────────────────────────────────────────────────────────────────────────────────────────────────────

# An Item of RFC 9651 that is a String: printable ASCII in quotes, of which only `"` and `\` are escaped. Its parameters
# are parsed and ignored: the field defines none (section 3.3), and a later version of the draft may add some.
_CHARACTERS: Final = rb'(?:[ !#-\[\]-~]|\\["\\])*'
_VALUE: Final = b"|".join(
    (
        rb'"%b"' % _CHARACTERS,
        rb"@?-?[0-9]{1,15}",  # a Date or an Integer
        rb"-?[0-9]{1,12}\.[0-9]{1,3}",
        rb"[A-Za-z*][!#$%&'*+\-.^_`|~0-9A-Za-z:/]*",
        rb":[A-Za-z0-9+/=]*:",
        rb"\?[01]",
        rb'%"(?:[ !#$&-~]|%[0-9a-f]{2})*"',
    )
)
_PARAMETER: Final = rb"; *[a-z*][a-z0-9_.*\-]*(?:=(?:%b))?" % _VALUE
_quoted = re.compile(rb' *"(%b)"(?:%b)* *' % (_CHARACTERS, _PARAMETER)).fullmatch
# Sent by clients that do not quote the value: a UUID, base64, a ULID. No spaces, commas or quotes.
_bare = re.compile(rb"[ \t]*([!#$%&'*+\-.^_`|~0-9A-Za-z:/=@]+)[ \t]*").fullmatch
_unescape = re.compile(rb"\\(.)").sub


def parse_key(value: bytes, *, bare: bool = False) -> str:
    """Return the key in the header's value. `bare` also accepts a key without quotes; it is the same key."""
    found = _quoted(value)
    if found is None and bare:
        found = _bare(value)
    if found is None:
        raise InvalidKey(
            "Idempotency-Key is malformed", hint='send a string in quotes, such as "8e03978e-40d5-43e8-bc93"'
        )
    key: bytes = found[1]
    if not key:
        raise MissingKey("Idempotency-Key is empty", hint="send a new value for each new request")
    if b"\\" in key:
        key = _unescape(rb"\1", key)
    return key.decode("ascii")


# ── the request ─────────────────────────────────────────────────────────────────────────────────────────────────

_DOMAIN: Final = b"onceward/http/2\0"
_VERSION: Final = bytes((ENCODER_VERSION,))
_PART_DIGEST_SIZE: Final = 4  # bytes, as in keys.fingerprint: enough to find a difference, too few to confirm a guess
_sha256 = hashlib.sha256
_blake2s = hashlib.blake2s


class IdempotentRequest(NamedTuple):
    """What identifies a request, except its body. `host` is in lower case, `path` and `query` are as received."""

    principal: str
    method: str
    host: bytes
    path: bytes
    query: bytes
    content_type: bytes


class RequestFingerprint(NamedTuple):
    """The fingerprint of a request, and short hashes of its parts that show what differs."""

    fingerprint: bytes
    parts: dict[str, str]


def fingerprint_request(
    request: IdempotentRequest, body: bytes, key_id: bytes, secret: bytes = b""
) -> RequestFingerprint:
    """Return the fingerprint of a request. `body` is the hash of its body. With `secret`, all hashes are keyed.

    The hash includes the length of each part, so that parts cannot run into each other. The short hashes are keyed
    with the record's id, so that equal requests under two keys cannot be recognised.
    """
    principal, method, host, path, query, content_type = request
    who, how = principal.encode("utf-8", "surrogatepass"), method.encode("utf-8", "surrogatepass")
    target = b"%d %d %d %b%b%b" % (len(how), len(path), len(query), how, path, query)
    sizes = b"%d %d %d %d " % (len(who), len(host), len(target), len(content_type))
    whole = b"".join((_DOMAIN, sizes, who, host, target, content_type, body))
    if secret:
        key_id = hmac.digest(secret, key_id, "sha256")
    digest = hmac.digest(secret, whole, "sha256") if secret else _sha256(whole).digest()
    return RequestFingerprint(
        _VERSION + digest[:FINGERPRINT_BYTES],
        {
            "host": _blake2s(host, digest_size=_PART_DIGEST_SIZE, key=key_id, person=b"host").hexdigest(),
            "target": _blake2s(target, digest_size=_PART_DIGEST_SIZE, key=key_id, person=b"target").hexdigest(),
            "content_type": _blake2s(
                content_type, digest_size=_PART_DIGEST_SIZE, key=key_id, person=b"type"
            ).hexdigest(),
            "body": _blake2s(body, digest_size=_PART_DIGEST_SIZE, key=key_id, person=b"body").hexdigest(),
        },
    )


# ── the response ────────────────────────────────────────────────────────────────────────────────────────────────

_NOT_MODIFIED: Final = 304  # states the length of a body that it does not send
# These belong to one connection (RFC 9110, 7.6.1), or they are credentials of one client.
NOT_STORED: Final = frozenset(
    (
        b"set-cookie",
        b"set-cookie2",
        b"authorization",
        b"authentication-info",
        b"www-authenticate",
        b"x-access-token",
        b"x-amz-security-token",
        b"x-api-key",
        b"x-auth-token",
        b"x-csrf-token",
        b"x-refresh-token",
        b"x-xsrf-token",
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)


class RawResponse(NamedTuple):
    """A complete response as raw bytes. Headers keep their order and repetitions."""

    status: int
    headers: Headers
    body: bytes


# Stored as an HTTP message, so that an operator can read it in the store:
#
#     201 CRLF  content-type: application/json CRLF  …  CRLF  body
#
_is_valid_head = re.compile(rb"[0-9]{3}(?:\r\n[!-9;-~]+: [^\r\n\0]*)*").fullmatch
_END: Final = b"\r\n\r\n"


def encode_response(
    status: int, headers: Iterable[Iterable[bytes]], body: bytes, not_stored: frozenset[bytes] = NOT_STORED
) -> bytes | None:
    """Return the stored form of a response, or None if it is not valid HTTP: no server would send it later either."""
    lines = [b"%d" % status]
    dropped = not_stored
    for name, value in headers:
        lowered = name.lower()
        if lowered == b"content-length" and value != b"%d" % len(body) and status != _NOT_MODIFIED:
            return None
        if lowered == b"connection":
            dropped = not_stored.union(map(bytes.strip, value.lower().split(b",")))
        if lowered not in dropped:
            lines.append(b"%b: %b" % (lowered, value))
    if dropped is not not_stored:
        lines[1:] = [line for line in lines[1:] if line.partition(b":")[0] not in dropped]
    head = b"\r\n".join(lines)
    if head.count(b"\n") != len(lines) - 1 or _is_valid_head(head) is None:
        return None
    return b"%b\r\n\r\n%b" % (head, body)


def decode_response(data: bytes) -> RawResponse:
    """Return the response that `encode_response` encoded. Raise `ResultCorrupt` if the data is not valid."""
    head, end, body = data.partition(_END)
    if not end or _is_valid_head(head) is None:
        raise errors.ResultCorrupt("the stored response is not valid HTTP")
    status, *lines = head.split(b"\r\n")
    return RawResponse(int(status), [tuple(line.split(b": ", 1)) for line in lines], body)  # type: ignore[misc]  # `encode_response` guarantees two parts each


def window_header(window: Window) -> Header:
    """Return the header that tells clients how long a key is remembered: in seconds, if the window is a duration."""
    value = b"%d" % math.ceil(window.length / SECOND) if window.length else str(window).encode("ascii")
    return (WINDOW_HEADER, value)


# ── problems (RFC 9457) ─────────────────────────────────────────────────────────────────────────────────────────


class Problem(NamedTuple):
    """Why the application did not answer. Never contains the text of an exception: those name hosts and processes."""

    status: int
    code: str
    title: str
    detail: str


NO_PRINCIPAL: Final = Problem(
    401, "no_principal", "Authentication required", "An Idempotency-Key belongs to a user: authenticate first."
)
NO_LONGER_ALLOWED: Final = Problem(
    403,
    "no_longer_allowed",
    "You may no longer read this response",
    "The request was done before. Its stored response is not sent, because your authorisation has changed.",
)
OVER_QUOTA: Final = Problem(
    429,
    "over_quota",
    "Too many Idempotency-Keys",
    "This request was not processed now. Send the same request again later.",
)
BODY_CUT_OFF: Final = Problem(400, "body_cut_off", "The body is incomplete", "Nothing was done.")
BODY_TOO_LARGE: Final = Problem(413, "body_too_large", "The body is too large", "Nothing was done.")

_PROBLEM_TEXTS: Final[dict[type[OncewardError], tuple[str, str]]] = {
    MissingKey: ("Idempotency-Key is missing", "This operation requires one. Use a new key for each new operation."),
    InvalidKey: (
        "Idempotency-Key is malformed",
        'It must be one string in quotes, as in Idempotency-Key: "8e03978e-40d5".',
    ),
    errors.AlreadyRunning: (
        "A request is outstanding for this Idempotency-Key",
        "The same request is being processed. Send it again later to get its response.",
    ),
    errors.PayloadMismatch: (
        "Idempotency-Key is already used",
        "This key was used before with a different request. Use a new key for a new operation.",
    ),
    errors.PreviouslyFailed: (
        "This request failed before",
        "It must not be retried now with this Idempotency-Key.",
    ),
    errors.OutcomeParked: (
        "The outcome of this request is unknown",
        "An earlier attempt was interrupted. It is not repeated until an operator has checked whether it took effect.",
    ),
    errors.ResultNotStored: (
        "The response to this request was not stored",
        "It was done before, and is not repeated. Its response was too large, or an operator resolved it without one.",
    ),
    errors.LeaseLost: (
        "Another attempt has taken over this request",
        "This attempt did not renew its lease in time. Send the request again to get the other attempt's response.",
    ),
    errors.OutcomeUnknown: (
        "The outcome of this request could not be recorded",
        "It was probably done. Send the same request again with the same Idempotency-Key.",
    ),
    errors.Stopping: ("This server is stopping", "Nothing was done. Send the request again."),
    errors.StoreFull: ("There is no room to store this Idempotency-Key", "Nothing was done."),
    errors.StoreError: (
        "Idempotency-Keys cannot be checked at the moment",
        "Nothing was done. Send the request again later.",
    ),
}
_OTHER_PROBLEM: Final = (
    "This request cannot be answered",
    "The record of its Idempotency-Key is not usable.",
)
_RETRYABLE: Final = frozenset((409, 503))
"""Statuses after which the client may send the same request again; `Retry-After` tells it when."""


def problem_for_error(kind: type[OncewardError]) -> Problem:
    """Return the problem that describes this kind of error to a client."""
    title, detail = next((_PROBLEM_TEXTS[base] for base in kind.__mro__ if base in _PROBLEM_TEXTS), _OTHER_PROBLEM)
    return Problem(kind.http_status, kind.code, title, detail)


def problem_body(problem: Problem, kind: str | None = None, **members: Any) -> bytes:
    """Return the problem as JSON, for programs (`code`) and people. `kind` is the URL of its documentation."""
    members = {
        "type": kind or "about:blank",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "code": problem.code,
        **members,
    }
    return msgspec.json.encode(members)


RETRY_AFTER: Final = 1.0
"""Seconds in `Retry-After` if it is not known when a retry will succeed."""


def whole_seconds(seconds: float) -> int:
    """Round up for `Retry-After`. Never 0: an immediate retry has just failed."""
    return max(1, math.ceil(seconds))


def problem_response(
    problem: Problem, *, documentation: str | None = None, retry_after: float | None = None, **members: Any
) -> RawResponse:
    """Return the problem as a response. `documentation` is the URL where the API documents its keys."""
    body = problem_body(problem, documentation, **members)
    headers = [
        (b"content-type", PROBLEM_CONTENT_TYPE),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
    ]
    if retry_after is not None:
        headers.append((b"retry-after", b"%d" % whole_seconds(retry_after)))
    if documentation:
        headers.append((b"link", b'<%b>; rel="describedby"' % documentation.encode("ascii")))
    return RawResponse(problem.status, headers, body)


def error_response(
    error: OncewardError, *, documentation: str | None = None, retry_after: float | None = None
) -> RawResponse:
    """Return the response to an Onceward error. `retry_after` is in seconds, used if a retry makes sense.

    While another request with the key runs, `Retry-After` is the time left on its lease, but at most `retry_after`.
    """
    problem = problem_for_error(type(error))
    soon = RETRY_AFTER if retry_after is None else retry_after
    if isinstance(error, errors.AlreadyRunning) and error.retry_after is not None:
        soon = error.retry_after if retry_after is None else min(error.retry_after, retry_after)
    again = soon if problem.status in _RETRYABLE and not isinstance(error, errors.OutcomeParked) else None
    if isinstance(error, errors.PreviouslyFailed):
        again = error.retry_after
    members: dict[str, Any] = {}
    if isinstance(error, errors.PayloadMismatch) and error.arguments:
        members["differs"] = error.arguments
    return problem_response(problem, documentation=documentation, retry_after=again, **members)


_ERROR_OF_OUTCOME: Final[dict[type[Outcome[Any]], type[OncewardError]]] = {
    Failed: errors.PreviouslyFailed,
    Parked: errors.OutcomeParked,
    Replayed: errors.ResultNotStored,
    Unknown: errors.OutcomeUnknown,
}


def outcome_response(
    outcome: Outcome[Any], *, documentation: str | None = None, retry_after: float | None = None
) -> RawResponse:
    """Return the response to an outcome that has no response of the application. `retry_after`: see error_response."""
    kind = _ERROR_OF_OUTCOME.get(type(outcome), errors.ClaimError)
    error: OncewardError
    if isinstance(outcome, Mismatch):
        error = errors.PayloadMismatch(arguments=outcome.arguments)
    elif isinstance(outcome, Failed):
        error = errors.PreviouslyFailed(retry_after=None if outcome.final else outcome.retry_after or 0)
    elif isinstance(outcome, Running):
        error = errors.AlreadyRunning(retry_after=outcome.retry_after)
    else:
        error = errors.LeaseLost() if isinstance(outcome, Unknown) and outcome.lost else kind()
    return error_response(error, documentation=documentation, retry_after=retry_after)
