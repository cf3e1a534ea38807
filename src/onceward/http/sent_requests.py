"""Which request of a piece of work this is, so that a retry sends the same key and another request another one.

A step that the user names is one request: whatever repeats it has its key. Without a name it is the n-th request with
this method and URL, and these rules keep that true on every attempt:

| the one before, of the same method and URL | this one is |
|---|---|
| none | the first |
| was answered | the next |
| got no answer, or one that asks to try again; the same body | the same once more |
| got no such answer; another body | undecided: refused, name the step |
| is still under way | undecided: refused, name the step |

What is undecided is refused because both guesses are wrong somewhere: one charges twice, the other never.
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

from .messages import settles_nothing

UNKNOWN_BODY: Final = b""
"""A body that is streamed cannot be compared."""

_step: ContextVar[str | None] = ContextVar("onceward_step", default=None)


@contextmanager
def step(name: str) -> Iterator[None]:
    """A block whose request is that step of the work. Its retries belong in here, too."""
    if not isinstance(name, str) or not name:
        raise ConfigurationError("a step needs a name", hint='such as step("charge")')
    before = _step.set(name)
    try:
        yield
    finally:
        _step.reset(before)


def named_step() -> str | None:
    """The step that this code is in; None if it is in none."""
    return _step.get()


class RequestLine(NamedTuple):
    """Method and URL, and what of them may be shown."""

    text: str
    shown: str


class Sent:
    """One request of an attempt. `body` is its hash."""

    __slots__ = ("answered", "body", "ordinal", "under_way")

    def __init__(self, ordinal: int, body: bytes) -> None:
        self.ordinal = ordinal
        self.body = body
        self.under_way = True
        self.answered = False

    def ended(self, status: int | None) -> None:
        """How it ended; None: without an answer."""
        self.under_way = False
        self.answered = status is not None and not settles_nothing(status)


class SentRequestLog:
    """The requests of one attempt, which begins anew: the n-th of an attempt is the n-th of every other."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._last: dict[str, Sent] = {}
        self._steps: dict[str, RequestLine] = {}
        self._lock = threading.Lock()

    def named(self, name: str, line: RequestLine) -> str:
        """The step of a request that has a name."""
        with self._lock:
            first = self._steps.setdefault(name, line)
        if first != line:
            raise ConfigurationError(
                f"the step {name!r} sent {first.shown} before, and now {line.shown}: one key cannot stand for both",
                key=self._key,
                hint="give each request a step of its own",
            )
        return name

    def next(self, line: RequestLine, body: bytes) -> Sent:
        """The request of this method and URL that is sent now."""
        with self._lock:
            last = self._last.get(line.text)
            if last is None or last.answered:
                last = self._last[line.text] = Sent(1 if last is None else last.ordinal + 1, body)
                return last
            if last.under_way:
                raise Reentrant(
                    f"{line.shown} is under way already, and only their order would tell the two apart",
                    key=self._key,
                    hint='name what each of them is: with step("charge"): …',
                )
            if body == UNKNOWN_BODY or body != last.body:
                raise ConfigurationError(
                    f"{line.shown} got no answer before, and this body is not the same: a retry, or another request?",
                    key=self._key,
                    hint='name the step, and keep its retries inside: with step("charge"): …',
                )
            last.under_way = True
            return last


_logs: WeakKeyDictionary[Attempt | CurrentStep, SentRequestLog] = WeakKeyDictionary()


def log_of(attempt: Attempt) -> SentRequestLog:
    """The requests of this attempt so far; of a saga, of this attempt of its step."""
    unit = attempt.act or attempt
    log = _logs.get(unit)
    return _logs.setdefault(unit, SentRequestLog(attempt.key.text)) if log is None else log
