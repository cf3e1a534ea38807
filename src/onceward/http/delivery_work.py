"""The work of a delivery: a handler with its choices, and the job that does it once under the delivery's id."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from onceward.client.base import BaseClient
from onceward.engine.ending import SettledNothing
from onceward.engine.engine import Engine
from onceward.engine.job import Job
from onceward.errors import ConfigurationError, InvalidKey
from onceward.keys.fingerprint import fingerprint, parts
from onceward.keys.key import Key
from onceward.operations.operation import NO_MARKS, label_of, result_annotation

from .messages import Response, settles_nothing

WINDOW: Final = "7d"
"""As long as Pub/Sub keeps a message, and longer than any of the known webhook senders tries."""


NO_ID: Final = b""
"""Of a key that is only told."""


class Rejected(Exception):
    """A delivery that can never be done. As the next, it never leaves this package: it is what the record says."""


class TryAgain(SettledNothing):
    """A handler's own answer that settles nothing: it is sent, but not stored, and the next delivery runs again."""

    def __init__(self, answer: Response) -> None:
        super().__init__(f"the handler answered {answer.status}")
        self.answer = answer


class UnsendableAnswer:
    """In the place of an answer that no server could send: the work is done, and its result not stored."""


class Work:
    """What is declared about a handler. A client's own defaults hold before those of the endpoint."""

    def __init__(
        self,
        once: BaseClient,
        name: str,
        handler: Callable[..., Any],
        defaults: Mapping[str, Any],
        choices: Mapping[str, Any],
    ) -> None:
        refuse_colour(once, handler)
        settings = {"window": WINDOW, "on_running": "raise", **defaults, **once._defaults, **choices}  # noqa: SLF001 (as the client's own faces do)
        settings["final"] = (*_several(settings.get("final", ())), Rejected, InvalidKey)
        self.client = once.using(**settings)
        self.name = name
        self.handler = handler
        self._call = _awaited_call(handler) if awaits(once) else _call(handler)
        annotation = result_annotation(handler)
        self.codec = self.client.codec(Response if annotation is Any else annotation)

    @property
    def engine(self) -> Engine:
        return self.client.engine

    def job(self, id: Any, payload: Mapping[str, Any] | None, argument: Any) -> Job:
        """The handler, once under this id. `payload` is what another delivery of the same id must have, too."""
        return self._job(id, payload, self._call, argument)

    def rejection(self, id: Any, payload: Mapping[str, Any] | None, why: str) -> Job:
        """A job that fails for good: the record of a delivery that nobody can do."""

        def reject() -> None:
            raise Rejected(why)

        return self._job(id, payload, reject)

    def _job(self, id: Any, payload: Mapping[str, Any] | None, call: Callable[..., Any], *args: Any) -> Job:
        client = self.client
        key = client.key(id, name=self.name)
        mark, marks = (b"", NO_MARKS) if payload is None else (fingerprint(payload), parts(payload, key.id))
        return Job(key, client.policy, self.codec, mark, marks, call, args, {}, awaits(client))


def _several(types: Any) -> tuple[Any, ...]:
    return tuple(types) if isinstance(types, tuple | list | set | frozenset) else (types,)


def _call(handler: Callable[..., Any]) -> Callable[..., Any]:
    return lambda argument: _settling(handler(argument))


def _awaited_call(handler: Callable[..., Any]) -> Callable[..., Any]:
    async def call(argument: Any) -> Any:
        return _settling(await handler(argument))

    return call


def _settling(value: Any) -> Any:
    if not isinstance(value, Response):
        return value
    sendable = value.can_be_sent()
    if settles_nothing(value.status):
        raise TryAgain(value if sendable else Response(value.status))
    return value if sendable else UnsendableAnswer()


def awaits(once: BaseClient) -> bool:
    """Whether its colour is the async one."""
    return once._awaits  # noqa: SLF001 (faces and what is built on them)


def refuse_colour(once: BaseClient, handler: Any) -> None:
    """A handler must be of its client's colour: the other one would block the loop, or never be awaited."""
    if not callable(handler):
        raise ConfigurationError(f"{handler!r} cannot be called", hint="give the handler itself")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise ConfigurationError(
            f"{label_of(handler)} yields, so that calling it runs nothing of it", hint="let it return instead"
        )
    if awaits(once) and inspect.isfunction(handler) and not inspect.iscoroutinefunction(handler):
        raise ConfigurationError(
            f"{label_of(handler)} is not async, and would block the event loop", hint="make it async def, or use Once"
        )
    if not awaits(once) and inspect.iscoroutinefunction(handler):
        raise ConfigurationError(
            f"{label_of(handler)} is async, and a blocking endpoint cannot await it",
            hint="use the Async… endpoint with AsyncOnce, or with once.aio of this client",
        )


def refuse_face(once: BaseClient, *, wanted_async: bool, what: str) -> None:
    """An endpoint and its client must be of the same colour."""
    if not isinstance(once, BaseClient):
        raise ConfigurationError(f"{what} needs a client, not {type(once).__name__}", hint="give it an Once")
    if awaits(once) is not wanted_async:
        raise ConfigurationError(
            f"{what} is {'async' if wanted_async else 'blocking'}, and {once!r} is not",
            hint="give it AsyncOnce, or once.aio" if wanted_async else f"use Async{what}, or give it an Once",
        )


def tell(once: BaseClient, event: str, name: str, key: str = "", *, reason: str = "", error: str = "") -> None:
    """Count and tell what no claim was made for. As with every event: the name of an error, never its message."""
    once.engine.emit(event, Key(once.state_scope(name), key, NO_ID), reason=reason, error=error)
