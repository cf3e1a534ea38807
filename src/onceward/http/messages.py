"""A request and the answer to it, whichever server brought it: endpoints know no framework."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final, cast

import msgspec

from . import semantics
from .semantics import Problem, problem_body, whole_seconds

TRY_AGAIN: Final = frozenset({408, 409, 425, 429})
"""Statuses that settle nothing, as all from 500 on: the same request may be sent once more."""

JSON = ("content-type", "application/json")
PROBLEM = ("content-type", semantics.PROBLEM.decode())


class InboundRequest:
    """What was received. `headers` is a mapping or pairs; their names are compared without case."""

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
            small = name.lower()
            before = self._headers.get(small)
            self._headers[small] = value if before is None else f"{before}, {value}"

    def header(self, name: str) -> str:
        """Its value; several of one name joined by commas, as HTTP has it; empty if there is none."""
        return self._headers.get(name.lower(), "")

    def headers(self) -> dict[str, str]:
        """All of them by their names, in lower case."""
        return dict(self._headers)

    def media_type(self) -> str:
        """What the body is said to be, without parameters, in lower case."""
        return self.header("content-type").partition(";")[0].strip().lower()

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.path}: {len(self.body)} bytes>"


_FIRST_FINAL, _BEYOND = 200, 600
_WITHOUT_BODY: Final = frozenset({204, 304})
_name = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_value = re.compile(r"[\t\x20-\x7e\x80-\xff]*").fullmatch


def _is_header(*pair: object) -> bool:
    match pair:
        case str(name), str(value):
            return bool(_name(name) and _value(value))
        case _:
            return False


class Response(msgspec.Struct, frozen=True):
    """What is sent back. A handler may return one: it is stored, and a duplicate gets the same."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def json(cls, value: Any, status: int = 200) -> Response:
        """An answer with this value as its JSON body."""
        return cls(status, msgspec.json.encode(value), (JSON,))

    def can_be_sent(self) -> bool:
        """Whether every server would: what types promise, a handler may break, and data may be in its headers."""
        return (
            _FIRST_FINAL <= self.status < _BEYOND
            and isinstance(self.body, bytes)
            and not (self.body and self.status in _WITHOUT_BODY)
            and isinstance(self.headers, tuple | list)
            and all(isinstance(one, tuple | list) and _is_header(*one) for one in self.headers)
        )

    @property
    def reason(self) -> str:
        """The phrase of its status."""
        try:
            return HTTPStatus(self.status).phrase
        except ValueError:  # a status of the user's own
            return "Unknown"


def settles_nothing(status: int) -> bool:
    """Whether the answer leaves open what became of the request."""
    return status in TRY_AGAIN or status >= semantics.SERVER_FAULT


def problem(status: int, code: str, detail: str, headers: Iterable[tuple[str, str]] = ()) -> Response:
    """An answer that says what is wrong, for programs (`code`) and people (`detail`), as RFC 9457 has it."""
    told = Problem(status, code, HTTPStatus(status).phrase, detail)
    return Response(status, problem_body(told), (PROBLEM, *headers))


def retry_after(seconds: float) -> tuple[str, str]:
    return "retry-after", str(whole_seconds(seconds))
