"""Process messages with a decorated function: turn them into jobs, claim those together, and run them."""

from __future__ import annotations

import asyncio
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from onceward.engine.attempt import Attempt
from onceward.engine.job import Job
from onceward.engine.runner import execute, is_protected
from onceward.errors import ConfigurationError, MissingKey
from onceward.keys.fingerprint import fingerprint, hash_arguments
from onceward.keys.key import Scope, make_key
from onceward.operations.decorator import BaseFunction
from onceward.protocol.message_note import MESSAGE
from onceward.protocol.outcome import Outcome
from onceward.protocol.policy import Policy
from onceward.results.codec import Codec

from .claims import ClaimResult, can_batch_result, claim_deliveries, run_delivery
from .client_calls import is_cancelled
from .in_flight import InFlight
from .message import Delivery, Message
from .result_batch import UNEXPECTED_CANCELLATION, ResultBatch, Settle
from .settlement import Unreadable
from .work import Decode, Work

MIN_PART = 40
Chain = list[tuple[Delivery, Job]]
"""Deliveries with the same key, processed one after the other."""


class FunctionWork(Work):
    """The work of a consumer whose handler is a decorated function. Blocking functions run in `concurrency` threads."""

    def __init__(self, handler: BaseFunction[..., Any], decode: Decode | None, concurrency: int, queue: str) -> None:
        self.operation = operation = handler.operation
        names = [name for name in operation.binding.names if name != operation.binding.receiver]
        self._takes_message = names[1:] == [MESSAGE]
        if not names or (names[1:] and not self._takes_message):
            raise ConfigurationError(
                f"{operation.name} has parameters that a consumer cannot fill",
                hint="it may have two: the event, and message: def book(event, message): …",
            )
        threads = 0 if operation.is_async else concurrency + 1  # one more, to claim the next batch at the same time
        decoding = decode or decoder(operation.fn, names[0])
        super().__init__(handler.client, handler.engine, operation.name, queue, decoding, threads=threads)
        self._handler = handler
        self._key_is_message_id = operation.is_keyed_by_all_arguments

    async def process(self, deliveries: Sequence[Delivery], in_flight: InFlight, settle: Settle) -> None:
        """Process a batch, claimed in one or a few calls. A key that occurs twice in it runs once and is replayed."""
        results = ResultBatch(self.engine, settle, in_flight.acknowledge)
        try:
            async with asyncio.TaskGroup() as group:
                await self._start(deliveries, in_flight, settle, results, group)
        except BaseException as error:
            await results.recover(error)
            raise

    async def _start(
        self,
        deliveries: Sequence[Delivery],
        in_flight: InFlight,
        settle: Settle,
        results: ResultBatch,
        group: asyncio.TaskGroup,
    ) -> None:
        chains: dict[bytes, Chain] = {}
        for delivery in deliveries:
            job = self.job(delivery.message)
            if isinstance(job, Unreadable):
                group.create_task(settle(delivery, job))
            elif not is_protected(self.engine, job):  # each runs without a claim
                group.create_task(self._process(delivery, job, None, settle))
            else:
                chains.setdefault(job.key.id, []).append((delivery, job))
        for part in _split(list(chains.values()), self.engine.batch_splits):
            group.create_task(self._claim_and_run(part, in_flight, settle, results, group))

    async def _claim_and_run(
        self, chains: list[Chain], in_flight: InFlight, settle: Settle, results: ResultBatch, group: asyncio.TaskGroup
    ) -> None:
        """Claim the first job of each chain in one call and start them. All parts of a batch share `results`."""
        found = await self._claim([chain[0] for chain in chains], in_flight)
        for one, chain in zip(found, chains, strict=True):
            if isinstance(one, Attempt):
                results.not_started.add(one)
            if self.operation.is_async and len(chain) == 1 and isinstance(one, Attempt) and can_batch_result(one):
                group.create_task(results.run(chain[0][0], one, group))
            else:
                group.create_task(self._process_chain(chain, one, in_flight, settle, results))

    async def _claim(self, jobs: Sequence[tuple[Delivery, Job]], in_flight: InFlight) -> Sequence[ClaimResult]:
        if not jobs:
            return ()
        try:
            found = await self._run_flow(claim_deliveries(self.engine, [job for _, job in jobs]))
        except Exception as error:  # noqa: BLE001 (nothing was started: all of it can be redelivered)
            return [error for _ in jobs]
        for (delivery, _), one in zip(jobs, found, strict=True):
            if isinstance(one, Attempt):
                in_flight.attach(delivery, one)
        return found

    async def _process_chain(
        self, chain: Chain, found: ClaimResult, in_flight: InFlight, settle: Settle, results: ResultBatch
    ) -> None:
        if isinstance(found, Attempt):
            results.not_started.discard(found)
        for position, (delivery, job) in enumerate(chain):
            if position > 0:  # the caller has claimed the first
                found = (await self._claim([(delivery, job)], in_flight))[0]
            await self._process(delivery, job, found, settle)

    async def _process(self, delivery: Delivery, job: Job, found: ClaimResult | None, settle: Settle) -> None:
        outcome: Outcome[Any] | Exception
        if found is None or isinstance(found, Attempt):
            try:
                flow = execute(self.engine, job) if found is None else run_delivery(found)
                outcome = await self._run_flow(flow)
            except Exception as error:  # noqa: BLE001 (of the store or of this process; what the handler raises is an outcome)
                outcome = error
            except asyncio.CancelledError:
                if is_cancelled():
                    raise
                outcome = RuntimeError(UNEXPECTED_CANCELLATION)
        else:
            outcome = found
        await settle(delivery, outcome)

    def job(self, message: Message) -> Job | Unreadable:
        """Return the job of a message, or `Unreadable` if it cannot be decoded or has no key."""
        try:
            args = (self._decode(message),)
            job = self._handler.job(args, {MESSAGE: message} if self._takes_message else {})
            if self._key_is_message_id:
                job = self._with_message_id_as_key(job, message)
        except Exception as error:  # noqa: BLE001 (`decode` is user code and the message is untrusted)
            return Unreadable(error)
        return replace(job, note=self._source_note(message))

    def _with_message_id_as_key(self, job: Job, message: Message) -> Job:
        """Use the message id as the key, because no key was declared. The payload still determines the fingerprint."""
        if not message.id:
            raise MissingKey("the message has no id", hint="declare key= from the event, or set ids when sending")
        key = make_key(job.key.scope, message.id)
        payload = self.operation.payload(self.operation.arguments(job.args, job.kwargs))
        secret = self.operation.fingerprint_key
        hashes = hash_arguments(payload, key.id, secret)
        return replace(job, key=key, fingerprint=fingerprint(payload, secret), arguments=hashes)

    def _record_settings(self) -> tuple[Scope, Policy, Codec]:
        return self.operation.scope, self.operation.policy, self.operation.codec


def _split(chains: list[Chain], parts: int) -> Iterator[list[Chain]]:
    """Split into parts of similar size, none so small that an extra store call costs more than it saves."""
    parts = max(1, min(parts, len(chains) // MIN_PART))
    size = -(-len(chains) // parts)
    return (chains[start : start + size] for start in range(0, len(chains), size or 1))


def decoder(fn: Callable[..., Any], parameter: str) -> Decode:
    """Return how to decode a body by the parameter's annotation: `bytes`, `str`, `Message` as is, others from JSON."""
    try:
        annotation = typing.get_type_hints(fn, include_extras=True).get(parameter, Any)
    except Exception:  # noqa: BLE001 (an unresolvable forward reference counts as no annotation)
        annotation = Any
    if annotation is Message:
        return lambda message: message
    if annotation is bytes:
        return lambda message: message.body
    if annotation is str:
        return lambda message: message.decode()
    validate_json: Any = getattr(annotation, "model_validate_json", None)
    if validate_json is not None:
        return lambda message: validate_json(message.body)
    return msgspec.json.Decoder(annotation).decode
