"""Identify each outgoing request of a piece of work: a retry gets the same key, a new request gets a new one.

A step that the user names is one request: all its repetitions have the same key. Without a name, a request is the n-th
one with this method and URL. These rules give the same n on every attempt:

| the previous request with this method and URL | this request is |
|---|---|
| does not exist | the first |
| got a final response | the next |
| got no response, or a retryable one; same body | a retry of the previous one |
| got no response, or a retryable one; different body | ambiguous: raises, name the step |
| is still in flight | ambiguous: raises, name the step |

An ambiguous request raises because either guess can be wrong: one charges twice, the other never.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from onceward.engine.attempt import Attempt, CurrentStep
from onceward.errors import ConfigurationError, Reentrant

from .messages import is_retryable_status

UNKNOWN_BODY: Final = b""
"""Hash of a streamed body, which cannot be compared."""

_step: ContextVar[str | None] = ContextVar("onceward_step", default=None)


@contextmanager
def step(name: str) -> Iterator[None]:
    """Return a block that gives the request inside it a `name` of its own, so that it gets its own key.

    A claim that sends several requests needs one block for each. Keep the retries of a request inside its block. An
    empty name raises `ConfigurationError`.
    """
    if not isinstance(name, str) or not name:
        raise ConfigurationError("a step needs a name", hint='such as step("charge")')
    before = _step.set(name)
    try:
        yield
    finally:
        _step.reset(before)


def current_step() -> str | None:
    """Return the name of the current step, or None."""
    return _step.get()


class RequestLine(NamedTuple):
    """Method and URL, and the form of them that may be displayed."""

    text: str
    display: str


class SentRequest:
    """One request of an attempt. `body` is the hash of its body."""

    __slots__ = ("answered", "body", "in_flight", "ordinal")

    def __init__(self, ordinal: int, body: bytes) -> None:
        self.ordinal = ordinal
        self.body = body
        self.in_flight = True
        self.answered = False

    def set_result(self, status: int | None) -> None:
        """Record the status of the response; None if there was none."""
        self.in_flight = False
        self.answered = status is not None and not is_retryable_status(status)


class SentRequestLog:
    """The requests of one attempt. Every attempt counts from one, so its n-th request is the same on each."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._last: dict[str, SentRequest] = {}
        self._steps: dict[str, RequestLine] = {}
        self._lock = threading.Lock()

    def named(self, name: str, line: RequestLine) -> str:
        """Return the name of a step, and raise if it sent a different request before."""
        with self._lock:
            first = self._steps.setdefault(name, line)
        if first != line:
            raise ConfigurationError(
                f"the step {name!r} sent {first.display} before, and {line.display} now: both would have one key",
                key=self._key,
                hint="use a separate step for each request",
            )
        return name

    def next(self, line: RequestLine, body: bytes) -> SentRequest:
        """Return the entry of the request that is sent now: a new one, or that of the request it retries."""
        with self._lock:
            last = self._last.get(line.text)
            if last is None or last.answered:
                last = self._last[line.text] = SentRequest(1 if last is None else last.ordinal + 1, body)
                return last
            if last.in_flight:
                raise Reentrant(
                    f"{line.display} is already in flight, and only their order would distinguish the two requests",
                    key=self._key,
                    hint='give each of them a name: with step("charge"): …',
                )
            if body == UNKNOWN_BODY or body != last.body:
                raise ConfigurationError(
                    f"{line.display} got no response before, and this body differs: a retry, or a new request?",
                    key=self._key,
                    hint='name the step, and keep its retries inside the block: with step("charge"): …',
                )
            last.in_flight = True
            return last


_logs: WeakKeyDictionary[Attempt | CurrentStep, SentRequestLog] = WeakKeyDictionary()


def request_log(attempt: Attempt) -> SentRequestLog:
    """Return the log of this attempt; in a saga, of this attempt of the step."""
    unit = attempt.step or attempt
    log = _logs.get(unit)
    return _logs.setdefault(unit, SentRequestLog(attempt.key.text)) if log is None else log
