"""The statement resource of a learning record store: `PUT`, `POST` and `GET …/xAPI/statements`, as plain WSGI.

It supports both versions of the specification. It does not support attachment data, formats other than `exact`, related
agents or related activities: requests for these get a 400.
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

from examples.learning import page
from examples.learning.records import IncomingStatement, Learning, parse_statement
from examples.learning.search import Search
from examples.learning.xapi import Invalid, instant
from examples.learning.xapi.parts import Uuid
from onceward import PayloadMismatch
from onceward.errors import SourceError
from onceward.http.endpoint import Endpoint
from onceward.http.messages import InboundRequest, Response, problem

PATH = "/xAPI/statements"
VERSIONS = {"1.0": "1.0.3", "2.0": "2.0.0"}
REPLAYED = ("idempotency-replayed", "true")  # not part of the specification, but harmless
IN_FLIGHT = timedelta(seconds=10)
"""A statement is stored shortly after its `stored` time. After this long, earlier statements are certainly visible."""

HOME = "https://lrs.example.com"


class RequestError(Exception):
    """Ends a request with this error response."""

    def __init__(self, status: int, code: str, detail: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(detail)
        self.answer = problem(status, code, detail, headers)


class Statements(Endpoint):
    """The statement resource, protected by HTTP basic authentication."""

    methods: ClassVar[tuple[str, ...]] = ("PUT", "POST", "GET", "HEAD")

    def __init__(self, learning: Learning, users: Mapping[str, str]) -> None:
        super().__init__()
        self._learning = learning
        self._users = users

    async def handle(self, request: InboundRequest) -> Response:
        version = VERSIONS["2.0"]
        through = (datetime.now(UTC) - IN_FLIGHT).isoformat()  # before anything is read
        try:
            if request.path.endswith("/about"):
                answer = Response.json({"version": sorted(VERSIONS.values())})
            else:
                user = self._authenticated(request)
                if request.path == "/" and request.method == "GET":
                    return page.render(self._learning.house)
                version = _version(request)
                answer = self._respond(request, user, version)
        except RequestError as rejection:
            answer = rejection.answer
        except Invalid as error:
            answer = problem(400, "invalid_statement", str(error))
        except SourceError as error:
            answer = problem(400, "rejection", str(error))
        except PayloadMismatch as error:
            answer = problem(409, "conflict", str(error))
        return _with_headers(
            answer, ("x-experience-api-version", version), ("x-experience-api-consistent-through", through)
        )

    def _respond(self, request: InboundRequest, user: str, version: str) -> Response:
        if not request.path.endswith(PATH):
            raise RequestError(404, "not_found", f"only {PATH} exists here")
        parameters = _parameters(request)
        if request.method in ("GET", "HEAD"):
            found = (
                self._get(parameters)
                if {"statementId", "voidedStatementId"} & parameters.keys()
                else self._list(parameters)
            )
            return found if request.method == "GET" else Response(found.status, b"", found.headers)
        body = _body(request)
        authority = {"objectType": "Agent", "account": {"homePage": HOME, "name": user}}
        if request.method == "PUT":
            replayed = self._put(body, parameters, version, authority)
            return Response(204, headers=(REPLAYED,) if replayed else ())
        return Response.json(self._post(body, parameters, version, authority))

    def _put(self, body: Any, parameters: Mapping[str, str], version: str, authority: dict[str, Any]) -> bool:
        """Store a statement. Return whether it was already stored."""
        wanted = _uuid(parameters, "statementId")
        _allow_only(parameters, "statementId")
        statement = parse_statement(body, id=wanted, version=version, authority=authority)
        if statement.id != wanted:
            raise RequestError(400, "other_id", f"the statement's own id is {statement.id}")
        return self._learning.store([statement], whole=True).same == 1

    def _post(self, body: Any, parameters: Mapping[str, str], version: str, authority: dict[str, Any]) -> list[str]:
        """Store all statements of the batch or none, and return their ids."""
        _allow_only(parameters)
        batch = [
            parse_statement(one, id=str(uuid4()), version=version, authority=authority)
            for one in (body if isinstance(body, list) else [body])
        ]
        _reject_duplicates(batch)
        if batch:
            self._learning.store(batch, whole=True)
        return [one.id for one in batch]

    def _get(self, parameters: Mapping[str, str]) -> Response:
        voided = "voidedStatementId" in parameters
        name = "voidedStatementId" if voided else "statementId"
        _allow_only(parameters, name, "format", "attachments")
        Search.parse({other: value for other, value in parameters.items() if other != name})
        statement = self._learning.get(_uuid(parameters, name), voided=voided)
        if statement is None:
            kind = "voided statement" if voided else "statement"
            raise RequestError(404, "not_found", f"{kind} {parameters[name]} does not exist")
        stored = ("last-modified", format_datetime(instant(statement["stored"]), usegmt=True))
        return _with_headers(Response.json(statement), stored)

    def _list(self, parameters: Mapping[str, str]) -> Response:
        found, after = Search.parse(parameters).statements(self._learning.house)
        more = f"{PATH}?{urlencode({**parameters, 'after': after})}" if after else ""
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
            raise RequestError(
                401, "unauthorized", "wrong user name or password", (("www-authenticate", 'Basic realm="xAPI"'),)
            )
        return name


def _version(request: InboundRequest) -> str:
    """Return the version to respond with."""
    requested = request.header("x-experience-api-version")
    found = VERSIONS.get(".".join(requested.split(".")[:2]))
    if found is None:
        known = " and ".join(sorted(VERSIONS.values()))
        raise RequestError(400, "version", f"X-Experience-API-Version {requested or 'is missing'}; use {known}")
    return found


def _parameters(request: InboundRequest) -> dict[str, str]:
    try:
        given = parse_qs(request.query, keep_blank_values=True, strict_parsing=bool(request.query), errors="strict")
    except ValueError as error:
        raise RequestError(400, "query", f"the query cannot be parsed: {error}") from error
    twice = [name for name, values in given.items() if len(values) > 1]
    if twice:
        raise RequestError(400, "query", f"{twice[0]} occurs twice")
    return {name: values[0] for name, values in given.items()}


def _allow_only(parameters: Mapping[str, str], *known: str) -> None:
    for name in parameters:
        if name not in known:
            raise RequestError(400, "parameter", f"{name} is not a parameter of this request")


def _uuid(parameters: Mapping[str, str], name: str) -> str:
    given = parameters.get(name, "")
    try:
        return msgspec.convert(given, Uuid).lower()
    except msgspec.ValidationError as error:
        raise RequestError(400, "parameter", f"{name} is not a UUID: {given!r}") from error


def _body(request: InboundRequest) -> Any:
    if request.media_type() != "application/json":
        raise RequestError(400, "media_type", "send statements as application/json; attachment data is not supported")
    try:
        return msgspec.json.decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(400, "not_json", str(error)) from error


def _reject_duplicates(batch: list[IncomingStatement]) -> None:
    ids = {one.id for one in batch}
    if len(ids) < len(batch):
        raise RequestError(400, "twice", "two statements of this batch have the same id")


def _with_headers(answer: Response, *headers: tuple[str, str]) -> Response:
    return Response(answer.status, answer.body, (*answer.headers, *headers))
