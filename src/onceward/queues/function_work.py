"""A decorated function at work: from messages to the jobs that they mean, claimed together, and to their outcomes."""

from __future__ import annotations

import asyncio
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from onceward.engine.attempt import Attempt
from onceward.engine.deliver import Found, carry_out, claim_together, may_go_together, needs_no_claim, park_apart
from onceward.engine.job import Job
from onceward.errors import ConfigurationError, MissingKey, StoreError
from onceward.keys.fingerprint import fingerprint, parts
from onceward.keys.key import make_key
from onceward.keys.sources import Payload
from onceward.operations.decorator import Guarded
from onceward.protocol.outcome import Outcome

from .broker import is_cancelled
from .dead_letter import noted, parked_job
from .driver import Driver
from .in_flight import InFlight
from .message import Delivery, Message
from .message_note import MESSAGE
from .result_batch import CANCELLED_ITSELF, Results, Settle
from .settlement_rule import Unreadable

Decode = Callable[[Message], Any]
LARGEST_BATCH = 256  # as many as stores like in one call
SMALLEST_PART = 40
Chain = list[tuple[Delivery, Job]]
"""Deliveries of one key, to be worked on one after the other."""


class FunctionWork:
    """What a decorated function makes of messages. Blocking functions run in threads, up to `concurrency` of them."""

    largest = LARGEST_BATCH

    def __init__(self, handler: Guarded[..., Any], decode: Decode | None, concurrency: int, queue: str) -> None:
        self.operation = handler.operation
        self.engine = handler.engine
        self.client = handler.client
        self.name = self.operation.name
        self._handler = handler
        self._queue = queue
        names = [name for name in self.operation.binding.names if name != self.operation.binding.receiver]
        self._takes_message = names[1:] == [MESSAGE]
        if not names or (names[1:] and not self._takes_message):
            raise ConfigurationError(
                f"{self.name} has parameters that a consumer does not know",
                hint="it may have two: the event, and message: def book(event, message): …",
            )
        self._decode = decode or decoder(self.operation.fn, names[0])
        source = self.operation.source
        self._by_transport = isinstance(source, Payload) and not (source.arguments or source.exclude)
        self._drive = Driver(
            0 if self.operation.awaits else concurrency + 1
        )  # one more, to claim the next batch meanwhile

    async def do(self, deliveries: Sequence[Delivery], hand: InFlight, settle: Settle) -> None:
        """A batch: claimed in one call, or a few. A key that comes twice in it is done, then told to have been done."""
        results = Results(self.engine, settle, hand.done)
        try:
            async with asyncio.TaskGroup() as group:
                await self._begin(deliveries, hand, settle, results, group)
        except BaseException as error:
            await results.recover(error)
            raise

    async def _begin(
        self, deliveries: Sequence[Delivery], hand: InFlight, settle: Settle, results: Results, group: asyncio.TaskGroup
    ) -> None:
        chains: dict[bytes, Chain] = {}
        for delivery in deliveries:
            job = self.job(delivery.message)
            if isinstance(job, Unreadable):
                group.create_task(settle(delivery, job))
            elif needs_no_claim(job):
                group.create_task(self._do(delivery, job, None, settle))
            else:
                chains.setdefault(job.key.id, []).append((delivery, job))
        for some in _in_parts(list(chains.values()), self.engine.parts):
            group.create_task(self._run(some, hand, settle, results, group))

    async def _run(
        self, chains: list[Chain], hand: InFlight, settle: Settle, results: Results, group: asyncio.TaskGroup
    ) -> None:
        """One claim for all of these. The results of all parts of a batch are recorded together."""
        found = await self._claim([chain[0] for chain in chains], hand)
        for one, chain in zip(found, chains, strict=True):
            if isinstance(one, Attempt):
                results.waits(one)
            if self.operation.awaits and len(chain) == 1 and isinstance(one, Attempt) and may_go_together(one):
                group.create_task(results.of(chain[0][0], one, group))
            else:
                group.create_task(self._do_chain(chain, one, hand, settle, results))

    async def _claim(self, some: Sequence[tuple[Delivery, Job]], hand: InFlight) -> Sequence[Found]:
        if not some:
            return ()
        try:
            found = await self._drive(claim_together(self.engine, [job for _, job in some]))
        except Exception as error:  # noqa: BLE001 (nothing was begun: all of it can come again)
            return [error for _ in some]
        for (delivery, _), one in zip(some, found, strict=True):
            if isinstance(one, Attempt):
                hand.under(delivery, one)
        return found

    async def _do_chain(self, chain: Chain, found: Found, hand: InFlight, settle: Settle, results: Results) -> None:
        if isinstance(found, Attempt):
            results.begins(found)
        for place, (delivery, job) in enumerate(chain):
            if place:
                found = (await self._claim([(delivery, job)], hand))[0]
            await self._do(delivery, job, found, settle)

    async def _do(self, delivery: Delivery, job: Job, found: Found | None, settle: Settle) -> None:
        outcome: Outcome[Any] | Exception
        if found is None or isinstance(found, Attempt | StoreError):
            try:
                outcome = await self._drive(carry_out(self.engine, job, found))
            except Exception as error:  # noqa: BLE001 (of the store, or of ours; what the handler raises is an outcome)
                outcome = error
            except asyncio.CancelledError:
                if is_cancelled():
                    raise
                outcome = RuntimeError(CANCELLED_ITSELF)
        else:
            outcome = found
        await settle(delivery, outcome)

    def job(self, message: Message) -> Job | Unreadable:
        """The job that a message means, or that it means none."""
        try:
            args = (self._decode(message),)
            made = self._handler.job(args, {MESSAGE: message} if self._takes_message else {})
            if self._by_transport:
                made = self._under_transport(made, message)
        except Exception as error:  # noqa: BLE001 (reading it is the user's own code, and the message is anybody's)
            return Unreadable(error)
        return replace(made, note=noted(message, self._queue))

    def _under_transport(self, made: Job, message: Message) -> Job:
        """No key was declared: the message is the work. Of what it holds the fingerprint is made all the same."""
        if not message.id:
            raise MissingKey("the message has no id", hint="declare a key= over the event, or let the sender give ids")
        key = make_key(made.key.scope, message.id)
        payload = self.operation.payload(self.operation.arguments(made.args, made.kwargs))
        return replace(made, key=key, fingerprint=fingerprint(payload), arguments=parts(payload, key.id))

    async def park(self, message: Message, kind: str, reason: str) -> bool:
        """Keep a PARKED record of a message that cannot be done. False: not now."""
        job = parked_job(message, self._queue, self.operation.scope, self.operation.policy, self.operation.codec)
        return await self._drive(park_apart(self.engine, job, kind, reason))

    def close(self) -> None:
        self._drive.close()


def _in_parts(chains: list[Chain], parts: int) -> Iterator[list[Chain]]:
    """Of about the same size, and none so small that its call costs more than what is saved."""
    parts = max(1, min(parts, len(chains) // SMALLEST_PART))
    size = -(-len(chains) // parts)
    return (chains[start : start + size] for start in range(0, len(chains), size or 1))


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
    of_pydantic: Any = getattr(wanted, "model_validate_json", None)
    if of_pydantic is not None:
        return lambda message: of_pydantic(message.body)
    return msgspec.json.Decoder(wanted).decode
