"""Receive submissions: `POST /submissions` in threads, and messages of a queue in tasks."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from examples.submissions.desk import Desk
from examples.submissions.rules import Quote, Submission
from onceward import Executed, Failed, Outcome, Replayed
from onceward.http.wsgi import IdempotencyMiddleware
from onceward.queues import Consumer, Queue

Start = Callable[[str, list[tuple[str, str]]], object]
PATH = "/submissions"
TOKEN = {"Authorization": "Bearer north"}
BROKERS = {"north": "north"}
"""The token of the only broker in the demo. `serve` reads tokens from $BROKERS."""


METRICS: dict[str, Any] = {"processed": "submission.processed", "processed_operation": "submission"}
"""`submission_processed_total{replay="true"}` counts submissions, and not also the requests that carry them."""


def consumer(desk: Desk, queue: Queue, **choices: Any) -> Consumer:
    """Return a consumer. It acknowledges finished messages, and failed ones are redelivered.

    Run it with `asyncio.run(consumer(…).consume())`.
    """
    return Consumer(desk.process_async, queue, **choices)


def application(desk: Desk, brokers: Mapping[str, str]) -> Any:
    """Return a WSGI application. `brokers` maps tokens to brokers. An `Idempotency-Key` is optional.

    Every request needs the token of a broker, with or without a key: a credit check costs money.
    """

    def answer(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        if (environ["REQUEST_METHOD"], environ["PATH_INFO"]) != ("POST", PATH):
            return _respond(start, "404 Not Found", {"error": f"there is only POST {PATH}"})
        if broker_of(environ) is None:
            return _respond(start, "401 Unauthorized", {"error": "send the token of a broker"})
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        try:
            submission = msgspec.json.decode(body, type=Submission)
        except (msgspec.DecodeError, RecursionError) as error:
            return _respond(start, "400 Bad Request", {"error": str(error)})
        return _respond(start, *_response_of(desk.process.outcome(submission)))

    def broker_of(environ: dict[str, Any]) -> str | None:
        sent = environ.get("HTTP_AUTHORIZATION", "").encode()
        known = ((f"Bearer {token}".encode(), name) for token, name in brokers.items())
        return next((name for token, name in known if hmac.compare_digest(token, sent)), None)

    return IdempotencyMiddleware(answer, desk.once, principal=broker_of, optional=[PATH], bare_keys=True)


def _response_of(outcome: Outcome[Quote]) -> tuple[str, dict[str, Any]]:
    match outcome:
        case Executed() | Replayed():
            details = {"replay": outcome.replayed, "key": outcome.key, "attempt": outcome.attempt}
            return "200 OK", {**details, "quote": outcome.unwrap()}
        case Failed():
            return "503 Service Unavailable", {"error": f"{outcome.error_type}: please send it again"}
        case _:
            return "409 Conflict", {"error": outcome.reason}


def _respond(start: Start, status: str, answer: dict[str, Any]) -> list[bytes]:
    body = msgspec.json.encode(answer)
    start(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
