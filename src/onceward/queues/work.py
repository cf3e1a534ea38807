"""The handler's side of a consumer: from a message to the job that it means, and from jobs to their outcomes."""

from __future__ import annotations

import asyncio
import hashlib
import typing
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from onceward.bridge import run
from onceward.core.deliver import Found, carry_out, carry_out_unclaimed, claim_together, needs_no_claim, park_apart
from onceward.core.job import Job
from onceward.decorator import Guarded
from onceward.errors import ConfigurationError, MissingKey
from onceward.model.fingerprint import fingerprint, parts
from onceward.model.key import Scope, make_key
from onceward.model.outcome import Outcome
from onceward.model.sources import Payload

from .message import Message

T = TypeVar("T")
Decode = Callable[[Message], Any]

MESSAGE = "message"
"""A second parameter of this name gets the message itself, with its id and headers."""

LONGEST_NOTE = 500  # characters of an id on a record


class Work:
    """What a decorated function makes of messages. Blocking functions run in threads, up to `at_once` of them."""

    def __init__(self, handler: Any, decode: Decode | None, at_once: int, queue: str) -> None:
        if not isinstance(handler, Guarded):
            raise ConfigurationError(
                f"{handler!r} is no decorated function", hint='decorate it: @once(key="order:{event[id]}")'
            )
        self.operation = handler.operation
        self.engine = handler.engine
        self._handler = handler
        self._queue = queue
        names = [name for name in self.operation.binding.names if name != self.operation.binding.receiver]
        self._takes_message = names[1:] == [MESSAGE]
        if not names or (names[1:] and not self._takes_message):
            raise ConfigurationError(
                f"{self.operation.name} has parameters that a consumer does not know",
                hint="it may have two: the event, and message: def book(event, message): …",
            )
        self._decode = decode or decoder(self.operation.fn, names[0])
        self._by_transport = isinstance(self.operation.source, Payload) and not (
            self.operation.source.arguments or self.operation.source.exclude
        )
        self._threads = 0 if self.operation.awaits else at_once + 1  # one more, to claim the next batch meanwhile
        self._pool: ThreadPoolExecutor | None = None

    def job(self, message: Message) -> Job | Exception:
        """The job that a message means, or the error that it means none: it cannot be read, or it has no key."""
        try:
            args = (self._decode(message),)
            made = self._handler.job(args, {MESSAGE: message} if self._takes_message else {})
            if self._by_transport:
                made = self._under_transport(made, message)
        except Exception as error:  # noqa: BLE001 (reading it is the user's own code, and the message is anybody's)
            return error
        return replace(made, note={MESSAGE: message.id[:LONGEST_NOTE], "queue": self._queue[:LONGEST_NOTE]})

    def _under_transport(self, made: Job, message: Message) -> Job:
        """No key was declared: the message is the work. Of what it holds the fingerprint is made all the same."""
        if not message.id:
            raise MissingKey("the message has no id", hint="declare a key= over the event, or let the sender give ids")
        key = make_key(made.key.scope, message.id)
        payload = self.operation.payload(self.operation.arguments(made.args, made.kwargs))
        return replace(made, key=key, fingerprint=fingerprint(payload), arguments=parts(payload, key.id))

    async def claim(self, jobs: Sequence[Job]) -> list[Found]:
        """In one call. The jobs are of different keys."""
        return await self._drive(claim_together(self.engine, jobs))

    async def carry_out(self, job: Job, found: Found | None) -> Outcome[Any] | Exception:
        """The outcome of a job that was claimed, or needs no claim."""
        if found is None:
            return await self._drive(carry_out_unclaimed(self.engine, job))
        return await self._drive(carry_out(self.engine, job, found))

    async def park(self, message: Message, kind: str, reason: str) -> bool:
        """Keep a PARKED record of a message that cannot be done. False: not now."""
        of = self.operation.scope
        scope = Scope(of.app, f"{of.operation}.message", of.tenant)
        body = f"sha256:{hashlib.sha256(message).hexdigest()}"
        note = {"queue": self._queue[:LONGEST_NOTE], MESSAGE: message.id[:LONGEST_NOTE], "body": body}
        key = make_key(scope, [self._queue, message.id or body], message.id or body)
        job = Job(key, self.operation.policy, self.operation.codec, note=note)
        return await self._drive(park_apart(self.engine, job, kind, reason))

    async def _drive(self, flow: Coroutine[Any, Any, T]) -> T:
        if not self._threads:
            return await flow
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "onceward-consumer")
        return await asyncio.get_running_loop().run_in_executor(self._pool, run, flow)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None


unclaimed = needs_no_claim


def decoder(fn: Callable[..., Any], parameter: str) -> Decode:
    """How a body becomes the argument, by its annotation: JSON of that type; `bytes`, `str`, `Message` as they are."""
    try:
        wanted = typing.get_type_hints(fn, include_extras=True).get(parameter, Any)
    except Exception:  # noqa: BLE001 (a forward reference that nobody can resolve means that nothing was declared)
        wanted = Any
    if wanted is Message:
        return lambda message: message
    if wanted is bytes:
        return lambda message: message.body
    if wanted is str:
        return lambda message: message.decode()
    if hasattr(wanted, "model_validate_json"):  # pydantic
        return lambda message: wanted.model_validate_json(message.body)
    return msgspec.json.Decoder(wanted).decode
