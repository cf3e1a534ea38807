"""The statement resource of a learning record store: `PUT`, `POST` and `GET …/xAPI/statements`, as plain WSGI.

Both versions of the specification are answered, each in its own words. There are no attachments' data here, no
other format than `exact` and no related agents or activities: what asks for these is told so (400), not misunderstood.
"""

from __future__ import annotations

import hmac
from base64 import b64decode
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlencode
from uuid import uuid4

import msgspec

from examples.learning.records import Incoming, Learning, incoming
from examples.learning.search import Search
from examples.learning.xapi import Invalid, instant
from examples.learning.xapi.parts import Uuid
from onceward import PayloadMismatch
from onceward.errors import SourceError
from onceward.http.endpoint import Endpoint
from onceward.http.messages import InboundRequest, Response, problem

PATH = "/xAPI/statements"
VERSIONS = {"1.0": "1.0.3", "2.0": "2.0.0"}
REPLAYED = ("idempotency-replayed", "true")  # no word of the specification, and no harm
IN_FLIGHT = timedelta(seconds=10)
"""A statement is stored a moment after the time that it says; what says an earlier one is there, surely enough."""

HOME = "https://lrs.example.com"


class Refused(Exception):
    """The answer to a request that cannot be followed."""

    def __init__(self, status: int, code: str, detail: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(detail)
        self.answer = problem(status, code, detail, headers)


class Statements(Endpoint):
    """The resource on learning records, for those with a name and a password."""

    methods: ClassVar[tuple[str, ...]] = ("PUT", "POST", "GET", "HEAD")

    def __init__(self, learning: Learning, users: Mapping[str, str]) -> None:
        super().__init__()
        self._learning = learning
        self._users = users

    async def handle(self, request: InboundRequest) -> Response:
        version = VERSIONS["2.0"]
        through = (datetime.now(UTC) - IN_FLIGHT).isoformat()  # before anything is looked at
        try:
            if request.path.endswith("/about"):
                return Response.json({"version": sorted(VERSIONS.values())})
            who = self._authenticated(request)
            version = _version(request)
            answer = self._answered(request, who, version)
        except Refused as refused:
            answer = refused.answer
        except Invalid as error:
            answer = problem(400, "invalid_statement", str(error))
        except SourceError as error:
            answer = problem(400, "refused", str(error))
        except PayloadMismatch as error:
            answer = problem(409, "conflict", str(error))
        return _with(answer, ("x-experience-api-version", version), ("x-experience-api-consistent-through", through))

    def _answered(self, request: InboundRequest, who: str, version: str) -> Response:
        if not request.path.endswith(PATH):
            raise Refused(404, "not_found", f"only {PATH} is here")
        asked = _parameters(request)
        if request.method in ("GET", "HEAD"):
            found = self._get(asked) if {"statementId", "voidedStatementId"} & asked.keys() else self._list(asked)
            return found if request.method == "GET" else Response(found.status, b"", found.headers)
        told = _body(request)
        authority = {"objectType": "Agent", "account": {"homePage": HOME, "name": who}}
        if request.method == "PUT":
            replayed = self._put(told, asked, version, authority)
            return Response(204, headers=(REPLAYED,) if replayed else ())
        return Response.json(self._post(told, asked, version, authority))

    def _put(self, told: Any, asked: Mapping[str, str], version: str, authority: dict[str, Any]) -> bool:
        """Whether it was there already."""
        wanted = _uuid(asked, "statementId")
        _only(asked, "statementId")
        statement = incoming(told, id=wanted, version=version, authority=authority)
        if statement.id != wanted:
            raise Refused(400, "other_id", f"the statement's own id is {statement.id}")
        return self._learning.store([statement], whole=True).same == 1

    def _post(self, told: Any, asked: Mapping[str, str], version: str, authority: dict[str, Any]) -> list[str]:
        """A batch goes in whole, or not at all."""
        _only(asked)
        batch = [
            incoming(one, id=str(uuid4()), version=version, authority=authority)
            for one in (told if isinstance(told, list) else [told])
        ]
        _refuse_twice(batch)
        if batch:
            self._learning.store(batch, whole=True)
        return [one.id for one in batch]

    def _get(self, asked: Mapping[str, str]) -> Response:
        voided = "voidedStatementId" in asked
        name = "voidedStatementId" if voided else "statementId"
        _only(asked, name, "format", "attachments")
        Search.of({other: value for other, value in asked.items() if other != name})
        statement = self._learning.get(_uuid(asked, name), voided=voided)
        if statement is None:
            raise Refused(404, "not_found", f"there is no {'voided ' if voided else ''}statement {asked[name]}")
        stored = ("last-modified", format_datetime(instant(statement["stored"]), usegmt=True))
        return _with(Response.json(statement), stored)

    def _list(self, asked: Mapping[str, str]) -> Response:
        found, after = Search.of(asked).statements(self._learning.house)
        more = f"{PATH}?{urlencode({**asked, 'after': after})}" if after else ""
        return Response.json({"statements": found, "more": more})

    def _authenticated(self, request: InboundRequest) -> str:
        kind, _, encoded = request.header("authorization").partition(" ")
        try:
            name, _, password = b64decode(encoded, validate=True).decode().partition(":")
        except ValueError:
            name = password = ""
        expected = self._users.get(name, "")
        same = hmac.compare_digest(expected.encode(), password.encode())
        if kind.lower() != "basic" or not expected or not same:
            raise Refused(401, "unauthorized", "who are you?", (("www-authenticate", 'Basic realm="xAPI"'),))
        return name


def _version(request: InboundRequest) -> str:
    """The newest of those that the client understands."""
    asked = request.header("x-experience-api-version")
    found = VERSIONS.get(".".join(asked.split(".")[:2]))
    if found is None:
        known = " and ".join(sorted(VERSIONS.values()))
        raise Refused(400, "version", f"X-Experience-API-Version is {asked or 'missing'}; {known} are answered here")
    return found


def _parameters(request: InboundRequest) -> dict[str, str]:
    try:
        given = parse_qs(request.query, keep_blank_values=True, strict_parsing=bool(request.query), errors="strict")
    except ValueError as error:
        raise Refused(400, "query", f"the query cannot be read: {error}") from error
    twice = [name for name, values in given.items() if len(values) > 1]
    if twice:
        raise Refused(400, "query", f"{twice[0]} is given twice")
    return {name: values[0] for name, values in given.items()}


def _only(asked: Mapping[str, str], *known: str) -> None:
    for name in asked:
        if name not in known:
            raise Refused(400, "parameter", f"{name} is no parameter of this request")


def _uuid(asked: Mapping[str, str], name: str) -> str:
    given = asked.get(name, "")
    try:
        return msgspec.convert(given, Uuid).lower()
    except msgspec.ValidationError as error:
        raise Refused(400, "parameter", f"{name} is no UUID: {given!r}") from error


def _body(request: InboundRequest) -> Any:
    if request.media_type() != "application/json":
        raise Refused(400, "media_type", "statements are sent as application/json; attachments' data is not taken here")
    try:
        return msgspec.json.decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, "not_json", str(error)) from error


def _refuse_twice(batch: list[Incoming]) -> None:
    ids = {one.id for one in batch}
    if len(ids) < len(batch):
        raise Refused(400, "twice", "two statements of this batch have the same id")


def _with(answer: Response, *headers: tuple[str, str]) -> Response:
    return Response(answer.status, answer.body, (*answer.headers, *headers))
