"""What HTTP makes of keys and outcomes, after draft-ietf-httpapi-idempotency-key-header. No I/O: adapters do that.

| what                                                 | answer                                                      |
|------------------------------------------------------|-------------------------------------------------------------|
| key missing where it is required, or malformed       | 400                                                         |
| nobody to whom the key could belong                  | 401, before anything else is looked at                      |
| body over the limit                                  | 413                                                         |
| done before, and its answer was kept                 | that answer, and `Idempotency-Replayed: true`               |
| done before, and its answer was too large to be kept | 410: there is nothing to retry, and nothing to be had       |
| somebody is at it                                    | 409 and `Retry-After`                                       |
| same key, other request                              | 422, and what differs                                       |
| failed before and not to be tried (yet), or parked   | 409                                                         |
| done, but the store did not confirm it               | 503 and `Retry-After`; 409 if somebody else took over       |
| the store is down, or this process is stopping       | 503 and `Retry-After`                                       |

What the application answers is kept once its handler began, but for 401, 403, 408, 425, 429 and 5xx: these free the
key, so that the same request may be tried again. 307 and 308 send it elsewhere, where it has another path:
they give the key back as if it had never come.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from onceward import errors
from onceward.errors import InvalidKey, MissingKey, OncewardError
from onceward.keys.canonical import ENCODER_VERSION
from onceward.protocol.outcome import Failed, Mismatch, Outcome, Parked, Replayed, Running, Unknown
from onceward.protocol.policy import SECOND
from onceward.protocol.window import Window

KEY_HEADER: Final = b"idempotency-key"
REPLAYED: Final = (b"idempotency-replayed", b"true")
WINDOW_HEADER: Final = b"idempotency-window"
PROBLEM: Final = b"application/problem+json"

Header = tuple[bytes, bytes]
Headers = Sequence[Header]

# ── the key ─────────────────────────────────────────────────────────────────────────────────────────────────────

# An Item of RFC 9651 that is a String: printable ASCII in quotes, of which only `"` and `\` are escaped. Its parameters
# are read and ignored, because the field has none of its own (3.3 there): whoever adds one later must not lose others.
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
# What clients send that know the header but not its syntax: a UUID, base64, a ULID. No spaces, commas or quotes.
_bare = re.compile(rb"[ \t]*([!#$%&'*+\-.^_`|~0-9A-Za-z:/=@]+)[ \t]*").fullmatch
_unescape = re.compile(rb"\\(.)").sub


def parse_key(value: bytes, *, bare: bool = False) -> str:
    """The key in the field's value. `bare` also takes a key without its quotes; it is the same key."""
    found = _quoted(value)
    if found is None and bare:
        found = _bare(value)
    if found is None:
        raise InvalidKey("Idempotency-Key is malformed", hint='a string in quotes, as in "8e03978e-40d5-43e8-bc93"')
    key: bytes = found[1]
    if not key:
        raise MissingKey("Idempotency-Key is empty", hint="send a value that is new for new work")
    if b"\\" in key:
        key = _unescape(rb"\1", key)
    return key.decode("ascii")


# ── the request ─────────────────────────────────────────────────────────────────────────────────────────────────

_REQUEST: Final = b"onceward/http/1\0"
_VERSION: Final = bytes((ENCODER_VERSION,))
_MARK: Final = 4  # bytes, as in keys.fingerprint: enough to tell two apart, too few to prove a guess
_sha256 = hashlib.sha256
_blake2s = hashlib.blake2s


class IdempotentRequest(NamedTuple):
    """What a request asks for, but for its body. `path` and `query` as they came."""

    principal: str
    method: str
    path: bytes
    query: bytes
    content_type: bytes


class Marks(NamedTuple):
    """What a request is compared by: the whole, and short hashes of its parts to name what differs."""

    fingerprint: bytes
    parts: dict[str, str]


def marks(request: IdempotentRequest, body: bytes, key_id: bytes) -> Marks:
    """Of a request; `body` is the SHA-256 of its body, however that was read. Lengths keep neighbours apart.

    The short hashes are keyed by the record's id, so that equal requests of two keys do not show.
    """
    principal, method, path, query, content_type = request
    who, how = principal.encode("utf-8", "surrogatepass"), method.encode("utf-8", "surrogatepass")
    target = b"%d %d %d %b%b%b" % (len(how), len(path), len(query), how, path, query)
    sizes = b"%d %d %d " % (len(who), len(target), len(content_type))
    whole = b"".join((_REQUEST, sizes, who, target, content_type, body))
    return Marks(
        _VERSION + _sha256(whole).digest(),
        {
            "target": _blake2s(target, digest_size=_MARK, key=key_id, person=b"target").hexdigest(),
            "content_type": _blake2s(content_type, digest_size=_MARK, key=key_id, person=b"type").hexdigest(),
            "body": _blake2s(body, digest_size=_MARK, key=key_id, person=b"body").hexdigest(),
        },
    )


# ── the answer ──────────────────────────────────────────────────────────────────────────────────────────────────

_FREEING: Final = frozenset((401, 403, 408, 425, 429))
_NOT_BEGUN: Final = frozenset((401, 403, 425, 429))
_ELSEWHERE: Final = frozenset((307, 308))
SERVER_FAULT: Final = 500
_NOT_MODIFIED: Final = 304  # tells the length of what it does not send
# They belong to one connection (RFC 9110, 7.6.1) or to one client, not to the work.
NOT_KEPT: Final = frozenset(
    (
        b"set-cookie",
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


def frees_key(status: int) -> bool:
    """Whether this answer of the application lets the same request be tried again."""
    return status in _FREEING or status >= SERVER_FAULT


def refuses(status: int) -> bool:
    """Whether it says that the work was not begun, so that even a key that parks may be tried again."""
    return status in _NOT_BEGUN


def leads_elsewhere(status: int) -> bool:
    """Whether the same request, method and body included, is to be made at another place: it was not begun here."""
    return status in _ELSEWHERE


class HttpAnswer(NamedTuple):
    """Status, headers in their order, repeated ones included, and the whole body."""

    status: int
    headers: Headers
    body: bytes


# Kept as the message that it is, so that people can read it in the store:
#
#     201 CRLF  content-type: application/json CRLF  …  CRLF  body
#
_head_is_sound = re.compile(rb"[0-9]{3}(?:\r\n[!-9;-~]+: [^\r\n\0]*)*").fullmatch
_END: Final = b"\r\n\r\n"


def kept(status: int, headers: Iterable[Iterable[bytes]], body: bytes) -> bytes | None:
    """An answer as it is stored. None if it is no HTTP: what a server refuses to send is not sent later either."""
    lines = [b"%d" % status]
    dropped = NOT_KEPT
    for name, value in headers:
        lowered = name.lower()
        if lowered == b"content-length" and value != b"%d" % len(body) and status != _NOT_MODIFIED:
            return None
        if lowered == b"connection":
            dropped = NOT_KEPT.union(map(bytes.strip, value.lower().split(b",")))
        if lowered not in dropped:
            lines.append(b"%b: %b" % (lowered, value))
    if dropped is not NOT_KEPT:
        lines[1:] = [line for line in lines[1:] if line.partition(b":")[0] not in dropped]
    head = b"\r\n".join(lines)
    if head.count(b"\n") != len(lines) - 1 or _head_is_sound(head) is None:
        return None
    return b"%b\r\n\r\n%b" % (head, body)


def kept_answer(data: bytes) -> HttpAnswer:
    """The answer that `kept` made these bytes of."""
    head, _, body = data.partition(_END)
    status, *lines = head.split(b"\r\n")
    return HttpAnswer(int(status), [tuple(line.split(b": ", 1)) for line in lines], body)  # type: ignore[misc]  # two parts each: `kept` saw to it


def published(window: Window) -> Header:
    """How long a key is known, as a header of every answer to a request with a key: seconds, if it is a time."""
    told = b"%d" % math.ceil(window.length / SECOND) if window.length else str(window).encode("ascii")
    return (WINDOW_HEADER, told)


# ── problems (RFC 9457) ─────────────────────────────────────────────────────────────────────────────────────────


class Problem(NamedTuple):
    """Why there is no answer of the application. Never a message of an exception: those name hosts and processes."""

    status: int
    code: str
    title: str
    detail: str


NO_PRINCIPAL: Final = Problem(401, "no_principal", "Who are you?", "A key belongs to somebody: authenticate first.")
BODY_CUT_OFF: Final = Problem(400, "body_cut_off", "The body is not whole", "Nothing was done.")
BODY_TOO_LARGE: Final = Problem(413, "body_too_large", "The body is too large", "Nothing was done.")

_TELLING: Final[dict[type[OncewardError], tuple[str, str]]] = {
    MissingKey: ("Idempotency-Key is missing", "This operation needs one, new for each new piece of work."),
    InvalidKey: ("Idempotency-Key is malformed", 'It is one string in quotes, as in Idempotency-Key: "8e03978e-40d5".'),
    errors.AlreadyRunning: (
        "A request is outstanding for this Idempotency-Key",
        "The same request is being worked on. Send it again later to get its answer.",
    ),
    errors.PayloadMismatch: (
        "Idempotency-Key is already used",
        "This key came before with another request. Use a new key for new work.",
    ),
    errors.PreviouslyFailed: (
        "This request failed before",
        "It is not to be tried again now under this Idempotency-Key.",
    ),
    errors.OutcomeParked: (
        "The outcome of this request is unknown",
        "An earlier attempt broke off. Somebody has to find out whether it took effect; it is not repeated until then.",
    ),
    errors.ResultNotStored: (
        "The answer to this request was not kept",
        "The request was done before, and is not done again. Its answer was too large, or could not be sent.",
    ),
    errors.LeaseLost: (
        "Another attempt has taken over this request",
        "This attempt fell silent for too long. Send the request again to get the answer of the other.",
    ),
    errors.OutcomeUnknown: (
        "The outcome of this request could not be recorded",
        "It was probably done. Send the same request again, with the same Idempotency-Key.",
    ),
    errors.Stopping: ("This server is stopping", "Nothing was done. Send the request again."),
    errors.StoreFull: ("There is no room for this Idempotency-Key", "Nothing was done."),
    errors.StoreError: ("Idempotency-Keys cannot be checked now", "Nothing was done. Send the request again later."),
}
_OTHERWISE: Final = (
    "This request cannot be answered",
    "Something is wrong with what is known about its Idempotency-Key.",
)
_AGAIN: Final = frozenset((409, 503))
"""Answers after which the same request may be sent again: they say when."""


def problem_of(kind: type[OncewardError]) -> Problem:
    """What a kind of error says to a client."""
    title, detail = next((_TELLING[one] for one in kind.__mro__ if one in _TELLING), _OTHERWISE)
    return Problem(kind.http_status, kind.code, title, detail)


def problem_body(problem: Problem, kind: str | None = None, **members: Any) -> bytes:
    """The problem as JSON, for programs (`code`) and people. `kind` is an address that says more."""
    told = {
        "type": kind or "about:blank",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "code": problem.code,
        **members,
    }
    return msgspec.json.encode(told)


def whole_seconds(seconds: float) -> int:
    """For `Retry-After`. Never 0: at once is what the sender has just tried."""
    return max(1, math.ceil(seconds))


def problem_answer(
    problem: Problem, *, documentation: str | None = None, retry_after: float | None = None, **members: Any
) -> HttpAnswer:
    """The problem as an answer. `documentation` is where your API says what it wants of keys."""
    body = problem_body(problem, documentation, **members)
    headers = [(b"content-type", PROBLEM), (b"content-length", b"%d" % len(body)), (b"cache-control", b"no-store")]
    if retry_after is not None:
        headers.append((b"retry-after", b"%d" % whole_seconds(retry_after)))
    if documentation:
        headers.append((b"link", b'<%b>; rel="describedby"' % documentation.encode("ascii")))
    return HttpAnswer(problem.status, headers, body)


def error_answer(error: OncewardError, *, documentation: str | None = None, retry_after: float = 1) -> HttpAnswer:
    """The answer to an error of ours. `retry_after`: seconds after which it makes sense to try again, if it does."""
    problem = problem_of(type(error))
    again = retry_after if problem.status in _AGAIN and not isinstance(error, errors.OutcomeParked) else None
    if isinstance(error, errors.PreviouslyFailed):
        again = error.retry_after
    members: dict[str, Any] = {}
    if isinstance(error, errors.PayloadMismatch) and error.arguments:
        members["differs"] = error.arguments
    return problem_answer(problem, documentation=documentation, retry_after=again, **members)


_KINDS: Final[dict[type[Outcome[Any]], type[OncewardError]]] = {
    Running: errors.AlreadyRunning,
    Failed: errors.PreviouslyFailed,
    Parked: errors.OutcomeParked,
    Replayed: errors.ResultNotStored,
    Unknown: errors.OutcomeUnknown,
}


def outcome_answer(outcome: Outcome[Any], *, documentation: str | None = None, retry_after: float = 1) -> HttpAnswer:
    """The answer to an outcome that brings none of the application's own."""
    kind = _KINDS.get(type(outcome), errors.ClaimError)
    error: OncewardError
    if isinstance(outcome, Mismatch):
        error = errors.PayloadMismatch(arguments=outcome.arguments)
    elif isinstance(outcome, Failed):
        error = errors.PreviouslyFailed(retry_after=None if outcome.final else outcome.retry_after or 0)
    else:
        error = errors.LeaseLost() if isinstance(outcome, Unknown) and outcome.lost else kind()
    left = outcome.retry_after if isinstance(outcome, Running) else None
    soon = retry_after if left is None else min(left, retry_after)
    return error_answer(error, documentation=documentation, retry_after=soon)
