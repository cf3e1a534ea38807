"""Framework-independent request and response of the webhook and push endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final, cast

import msgspec

from . import semantics
from .semantics import Problem, problem_body, whole_seconds
from .statuses import SERVER_ERROR

RETRYABLE_STATUSES: Final = frozenset({408, 409, 425, 429})
"""Statuses after which the same request may be sent again. All statuses from 500 on are retryable as well."""

JSON_HEADER = ("content-type", "application/json")
PROBLEM_HEADER = ("content-type", semantics.PROBLEM_CONTENT_TYPE.decode())


class InboundRequest:
    """A received request.

    - `method`, `path`, `query`: as in the request line; the query without `?`.
    - `headers`: a mapping or pairs; their names are case-insensitive.
    - `body`: the bytes as they were received. Signatures cover exactly these.
    """

    __slots__ = ("_headers", "body", "method", "path", "query")

    def __init__(
        self,
        method: str,
        headers: Mapping[str, str] | Iterable[tuple[str, str]],
        body: bytes,
        *,
        path: str = "/",
        query: str = "",
    ) -> None:
        self.method = method.upper()
        self.body = body
        self.path = path
        self.query = query
        self._headers: dict[str, str] = {}
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        for name, value in cast("Iterable[tuple[str, str]]", pairs):
            lowered = name.lower()
            previous = self._headers.get(lowered)
            self._headers[lowered] = value if previous is None else f"{previous}, {value}"

    def header(self, name: str) -> str:
        """Return the value of the header `name`, or "". Repeated headers are joined by commas."""
        return self._headers.get(name.lower(), "")

    def headers(self) -> dict[str, str]:
        """Return all headers, with names in lower case."""
        return dict(self._headers)

    def without_body(self) -> InboundRequest:
        """Return the same request with an empty body."""
        return InboundRequest(self.method, self._headers, b"", path=self.path, query=self.query)

    def media_type(self) -> str:
        """Return the content type without parameters, in lower case."""
        return self.header("content-type").partition(";")[0].strip().lower()

    def __repr__(self) -> str:
        return f"<InboundRequest {self.method} {self.path}: {len(self.body)} bytes>"


_MIN_STATUS, _MAX_STATUS = 200, 600
_BODILESS_STATUSES: Final = frozenset({204, 304})
_name = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_value = re.compile(r"[\t\x20-\x7e\x80-\xff]*").fullmatch


def _is_header(*pair: object) -> bool:
    match pair:
        case str(name), str(value):
            return bool(_name(name) and _value(value))
        case _:
            return False


class Response(msgspec.Struct, frozen=True):
    """A response: `status`, `body` and pairs of `headers`.

    If a handler returns one, it is stored, and duplicates get the same response.
    """

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def json(cls, value: Any, status: int = 200) -> Response:
        """Return a response with this `value` as its JSON body, and this HTTP `status`."""
        return cls(status, msgspec.json.encode(value), (JSON_HEADER,))

    def can_be_sent(self) -> bool:
        """Return whether every server would accept it. A handler may ignore the types, or put data into headers."""
        return (
            _MIN_STATUS <= self.status < _MAX_STATUS
            and isinstance(self.body, bytes)
            and not (self.body and self.status in _BODILESS_STATUSES)
            and isinstance(self.headers, tuple | list)
            and all(isinstance(pair, tuple | list) and _is_header(*pair) for pair in self.headers)
        )

    @property
    def reason(self) -> str:
        """The reason phrase of the status."""
        try:
            return HTTPStatus(self.status).phrase
        except ValueError:  # a non-standard status
            return "Unknown"


def is_retryable_status(status: int) -> bool:
    """Return whether a response with this status is not final: the same request may be sent again."""
    return status in RETRYABLE_STATUSES or status >= SERVER_ERROR


def problem(status: int, code: str, detail: str, headers: Iterable[tuple[str, str]] = ()) -> Response:
    """Return a problem response (RFC 9457), for programs (`code`) and people (`detail`)."""
    body = problem_body(Problem(status, code, HTTPStatus(status).phrase, detail))
    return Response(status, body, (PROBLEM_HEADER, *headers))


def retry_after_header(seconds: float) -> tuple[str, str]:
    return "retry-after", str(whole_seconds(seconds))
