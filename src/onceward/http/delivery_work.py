"""The work of a delivery: a handler with its settings, and the job that runs it once under the delivery's id."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from onceward.client.base import BaseClient
from onceward.engine.conclude import SettledNothing
from onceward.engine.engine import Engine
from onceward.engine.job import Job
from onceward.errors import ConfigurationError
from onceward.keys.fingerprint import fingerprint, hash_arguments
from onceward.keys.key import Key
from onceward.operations.operation import NO_ARGUMENT_HASHES, label_of, result_annotation

from .messages import Response, is_retryable_status

WINDOW: Final = "7d"
"""As long as Pub/Sub keeps a message, and longer than any known webhook sender retries."""

ANY_RESULT: Final = Any | Response
"""The result of a handler without a return annotation: plain values, and a `Response`."""

NO_ID: Final = b""
"""Id of a key that only appears in an event."""


class Rejected(Exception):
    """A delivery that can never be processed. Recorded as the error; never raised to the caller."""


class RetryableResponse(SettledNothing):
    """The handler returned a retryable response: it is sent but not stored, and the next delivery runs again."""

    def __init__(self, response: Response) -> None:
        super().__init__(f"the handler answered {response.status}")
        self.response = response


class UnsendableResponse:
    """Placeholder for a response that no server could send: the work is done, but its result is not stored."""


class Work:
    """A handler and its settings. The client's defaults take precedence over those of the endpoint."""

    def __init__(
        self,
        once: BaseClient,
        name: str,
        handler: Callable[..., Any],
        defaults: Mapping[str, Any],
        choices: Mapping[str, Any],
    ) -> None:
        check_handler(once, handler)
        settings = {"window": WINDOW, "on_running": "raise", **defaults, **once._defaults, **choices}  # noqa: SLF001 (shared with the clients)
        settings["final"] = (*as_tuple(settings.get("final", ())), Rejected)
        self.client = once.using(**settings)
        self.name = name
        self.handler = handler
        self._call = _async_call(handler) if is_async(once) else _sync_call(handler)
        annotation = result_annotation(handler)
        self.codec = self.client.codec(ANY_RESULT if annotation is Any else annotation)

    @property
    def engine(self) -> Engine:
        return self.client.engine

    def job(self, id: Any, payload: Mapping[str, Any] | None, argument: Any) -> Job:
        """Return the job that runs the handler once under this id. Redeliveries must have the same `payload`."""
        return self._job(id, payload, self._call, argument)

    def rejection(self, id: Any, payload: Mapping[str, Any] | None, why: str) -> Job:
        """Return a job that fails permanently, to record a delivery that no handler can process."""

        def reject() -> None:
            raise Rejected(why)

        return self._job(id, payload, reject)

    def _job(self, id: Any, payload: Mapping[str, Any] | None, call: Callable[..., Any], *args: Any) -> Job:
        client = self.client
        key = client.key(id, name=self.name)
        if payload is None:
            payload_hash, part_hashes = b"", NO_ARGUMENT_HASHES
        else:
            secret = client.fingerprint_key
            payload_hash, part_hashes = fingerprint(payload, secret), hash_arguments(payload, key.id, secret)
        return Job(key, client.policy, self.codec, payload_hash, part_hashes, call, args, {}, is_async(client))


def as_tuple(types: Any) -> tuple[Any, ...]:
    return tuple(types) if isinstance(types, tuple | list | set | frozenset) else (types,)


def _sync_call(handler: Callable[..., Any]) -> Callable[..., Any]:
    return lambda argument: _check_response(handler(argument))


def _async_call(handler: Callable[..., Any]) -> Callable[..., Any]:
    async def call(argument: Any) -> Any:
        return _check_response(await handler(argument))

    return call


def _check_response(value: Any) -> Any:
    if not isinstance(value, Response):
        return value
    sendable = value.can_be_sent()
    if is_retryable_status(value.status):
        raise RetryableResponse(value if sendable else Response(value.status))
    return value if sendable else UnsendableResponse()


def is_async(once: BaseClient) -> bool:
    """Return whether this is an async client."""
    return once._is_async  # noqa: SLF001 (shared with the clients)


def check_handler(once: BaseClient, handler: Any) -> None:
    """Raise unless handler and client are both sync or both async.

    Otherwise the handler would block the event loop, or never be awaited.
    """
    if not callable(handler):
        raise ConfigurationError(f"{handler!r} is not callable", hint="pass the handler function itself")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise ConfigurationError(
            f"{label_of(handler)} is a generator function: calling it would not run it",
            hint="return the result instead of yielding",
        )
    if is_async(once) and inspect.isfunction(handler) and not inspect.iscoroutinefunction(handler):
        raise ConfigurationError(
            f"{label_of(handler)} is not async, and would block the event loop",
            hint="declare it with async def, or use Once",
        )
    if not is_async(once) and inspect.iscoroutinefunction(handler):
        raise ConfigurationError(
            f"{label_of(handler)} is async, and a sync endpoint cannot await it",
            hint="use the Async… endpoint with AsyncOnce, or with once.aio of this client",
        )


def check_client(once: BaseClient, *, wanted_async: bool, what: str) -> None:
    """Raise unless endpoint and client are both sync or both async."""
    if not isinstance(once, BaseClient):
        raise ConfigurationError(f"{what} needs a client, not {type(once).__name__}", hint="pass a Once")
    if is_async(once) is not wanted_async:
        raise ConfigurationError(
            f"{what} is {'async' if wanted_async else 'sync'}, but {once!r} is not",
            hint="pass an AsyncOnce, or once.aio" if wanted_async else f"use Async{what}, or pass a Once",
        )


def emit_event(once: BaseClient, event: str, name: str, key: str = "", *, reason: str = "", error: str = "") -> None:
    """Emit an event of a delivery that was not claimed. `error` is the name of the error type, never its message."""
    once.engine.emit(event, Key(once.state_scope(name), key, NO_ID), reason=reason, error=error)
