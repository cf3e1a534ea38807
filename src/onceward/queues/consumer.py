"""The consumer: receives deliveries, processes each once, and settles it by its outcome (`settlement_for`).

    receive a batch → claim all of its keys in one call → run each → settlement_for → ack, nack or dead_letter

During the work, the lease at the store and the ack deadline at the broker are extended. If this process dies or the
broker is unreachable, unsettled messages are delivered again. The record then shows what happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from onceward.engine.error_text import message_of
from onceward.engine.events import Event
from onceward.errors import ConfigurationError, RecordBroken, StoreError
from onceward.latest.api import BaseLatestState
from onceward.observe.log import log_raised
from onceward.operations.decorator import BaseFunction
from onceward.protocol.duration import Duration, microseconds
from onceward.protocol.policy import SECOND

from .batch_work import Batch, BatchWork
from .client_calls import client_call
from .function_work import FunctionWork
from .in_flight import InFlight
from .latest_work import LatestStateWork
from .message import Delivery
from .port import Queue
from .settlement import Ack, BackoffPolicy, DeadLetter, DeliveryResult, Retry, settlement_for
from .work import Decode, Work

DEFAULT_CONCURRENCY = 10
REFILL_WAIT = 0.02  # seconds to wait for more of a batch to finish, so that the next one has more than one message


class Consumer:
    """Processes the messages of a `queue` with a decorated function, up to `concurrency` (10) at a time.

    The first parameter of the `handler` receives the event: the body, parsed as JSON of the annotated type, or the
    result of `decode(message)`. An optional second parameter, `message`, receives the message with its id and headers.
    The key may use both: key=["{event.id}", "{message.id}"] is the event's own id if it has one, otherwise the
    transport id. Without `key=`, the key is the transport id.

    The handler may also be a state, `once.state(…)`. Then `decode(message)` returns the `StateEvent` of the message,
    and each batch is applied in one call. Or it may be a `Batch`, whose function receives many events at once. Then
    `concurrency` defaults to two batches, so that one is fetched while the other is processed.

    A retried message waits for the function's `retry_delay`. Without one, and after errors that have no known duration,
    it waits for `first_delay`, doubled each time up to `longest_delay`.
    """

    poll_timeout = 1.0
    """Seconds that one receive call waits for messages. A stop request may go unnoticed for this long."""

    def __init__(
        self,
        handler: Any,
        queue: Queue,
        *,
        concurrency: int | None = None,
        decode: Decode | None = None,
        first_delay: Duration = "1s",
        longest_delay: Duration = "60s",
    ) -> None:
        if concurrency is None:
            concurrency = 2 * handler.largest if isinstance(handler, Batch) else DEFAULT_CONCURRENCY
        if concurrency < 1:
            raise ConfigurationError(f"concurrency={concurrency} would receive no messages", hint="pass at least 1")
        self.queue = queue
        self.concurrency = concurrency
        self.backoff = BackoffPolicy(
            microseconds(first_delay, "first_delay") / SECOND, microseconds(longest_delay, "longest_delay") / SECOND
        )
        self._work = _work_for(handler, decode, concurrency, queue.name)
        self._engine = self._work.engine
        self.client: Any = self._work.client
        self._stopping = False
        self._broker_failures = self._store_failures = 0  # consecutive

    def stop(self) -> None:
        """Stop receiving messages and finish those in flight. May be called from a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Consume until SIGTERM or Ctrl-C, then close the client. For processes that do nothing else."""
        from .process import run_all  # imported here because it imports this module

        run_all([self])

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called on this consumer or on its client."""
        return self._stopping or self._engine.stopping

    def __repr__(self) -> str:
        return f"<Consumer of {self.queue.name} by {self._work.name}, {self.concurrency} at once>"

    async def consume(self) -> None:
        """Process messages until `stop()`, then finish those in flight. After a cancellation, they are redelivered."""
        await self._open()
        in_flight = InFlight(self.queue, self.queue.ack_deadline, self._emit_failure)
        batches: set[asyncio.Task[None]] = set()
        try:
            while not self.stopping:
                deliveries = await self._receive(in_flight)
                if deliveries:
                    batches.add(asyncio.create_task(self._handle(in_flight, deliveries)))
                batches = {batch for batch in batches if not batch.done() or batch.result()}  # raises what it raised
            await asyncio.gather(*batches)
            await in_flight.wait_for_acks()
        finally:
            for batch in batches:
                batch.cancel()
            if batches:
                await asyncio.wait(batches)
            await in_flight.close()
            self._work.close()
            await self._close()

    async def _close(self) -> None:
        """Close the queue. The work is over, so an unreachable broker is reported and does not raise."""
        try:
            await self.queue.close()
        except Exception as error:  # noqa: BLE001 (the broker redelivers unsettled messages anyway)
            self._emit_failure("close", error)

    async def _open(self) -> None:
        """Open the queue. If that fails, leave no connection open."""
        try:
            await self.queue.open()
        except BaseException:
            with contextlib.suppress(Exception):
                await self.queue.close()
            raise

    async def _receive(self, in_flight: InFlight) -> list[Delivery]:
        """Return the next batch: empty if there are no messages, or after a failure."""
        if self._broker_failures or self._store_failures:
            await self._sleep(self.backoff.after(max(self._broker_failures, self._store_failures)))
        await in_flight.wait_until_below(self.concurrency // 2 + 1, timeout=REFILL_WAIT)
        await in_flight.wait_until_below(self.concurrency, timeout=self.poll_timeout)
        room = min(self.concurrency - len(in_flight), self._work.largest)
        if self.stopping or room <= 0:
            return []
        failures, self._broker_failures = self._broker_failures, 0  # before the call: a `nack` may fail during it
        try:
            deliveries = await client_call(self.queue.receive(room, self.poll_timeout))
        except Exception as error:  # noqa: BLE001 (the broker is unreachable; it may recover)
            self._broker_failures = failures + 1
            self._emit_failure("receive", error)
            return []
        for delivery in deliveries:
            in_flight.add(delivery)
        return deliveries

    async def _sleep(self, seconds: float) -> None:
        """Sleep in slices: `stop` may be called in a signal handler, where it cannot wake this task."""
        for _ in range(math.ceil(seconds / self.poll_timeout)):
            if not self.stopping:
                await asyncio.sleep(min(seconds, self.poll_timeout))

    async def _handle(self, in_flight: InFlight, deliveries: Sequence[Delivery]) -> None:
        """Process one batch. A failure of the store counts once per batch, not once per delivery.

        A damaged record does not count: the other keys can be used.
        """
        store_failed = False
        logged: object = None

        async def settle(delivery: Delivery, outcome: DeliveryResult) -> None:
            nonlocal store_failed, logged
            if isinstance(outcome, StoreError) and not isinstance(outcome, RecordBroken):
                store_failed = True
            raised = outcome if isinstance(outcome, Exception) else getattr(outcome, "exception", None)
            if raised is not logged:  # the function of a `Batch` raises one exception for all of its events
                logged = raised
                log_raised(raised, delivery.message.id)
            await self._settle(in_flight, delivery, outcome)

        try:
            await self._work.process(deliveries, in_flight, settle)
        finally:
            self._store_failures = self._store_failures + 1 if store_failed else 0
            for delivery in deliveries:
                in_flight.remove(delivery)

    async def _settle(self, in_flight: InFlight, delivery: Delivery, outcome: DeliveryResult) -> None:
        """Settle the delivery at the broker. If the broker is unreachable, it is settled at its next delivery."""
        wanted = settlement_for(outcome, delivery.message.deliveries, self.backoff)
        settlement = await self._dead_letter(delivery, wanted) if isinstance(wanted, DeadLetter) else wanted
        if isinstance(settlement, Ack):
            in_flight.acknowledge(delivery)
            return
        in_flight.remove(delivery)
        if isinstance(settlement, Retry):
            self._emit("delivered_later", delivery, f"{settlement.reason}: in {settlement.seconds:.1f} s")
            try:
                await client_call(self.queue.nack(delivery, settlement.seconds))
            except Exception as error:  # noqa: BLE001 (then it is redelivered at the broker's own ack deadline)
                self._broker_failures = max(self._broker_failures, 1)  # it may be redelivered in a loop: wait first
                self._emit_failure("nack", error)

    async def _dead_letter(self, delivery: Delivery, why: DeadLetter) -> Ack | Retry | None:
        """Dead-letter or park the message, and only then acknowledge it. None: the dead letter queue settled it."""
        reason = f"{why.kind}: {why.reason}"
        try:
            if self.queue.dead_letters:
                await client_call(self.queue.dead_letter(delivery, reason))
                self._engine.bus.count("dead_lettered", self.queue.name)
                self._emit("dead_lettered", delivery, why.kind)  # without its text, which may quote the body
                return None
            if why.parked or await self._work.park(delivery.message, why.kind, why.reason):
                return Ack()
        except Exception as error:  # noqa: BLE001 (neither the broker nor the store accepted it: redeliver it)
            self._emit_failure("dead letter", error)
        return Retry(self.backoff.after(delivery.message.deliveries), f"not dead-lettered yet: {why.kind}")

    def _emit(self, name: str, delivery: Delivery, reason: str) -> None:
        bus = self._engine.bus
        if bus.wants(name):
            bus.emit(Event(name=name, key=delivery.message.id, scope=self.queue.name, reason=reason))

    def _emit_failure(self, call: str, error: Exception) -> None:
        bus = self._engine.bus
        if bus.wants("queue_failed"):
            text = f"{type(error).__qualname__}: {message_of(error)}"
            bus.emit(Event(name="queue_failed", key="", scope=self.queue.name, reason=call, error=text))


def _work_for(handler: Any, decode: Decode | None, concurrency: int, queue: str) -> Work:
    if isinstance(handler, BaseFunction):
        return FunctionWork(handler, decode, concurrency, queue)
    if isinstance(handler, Batch):
        return BatchWork(handler, decode or msgspec.json.decode, queue)
    if isinstance(handler, BaseLatestState) and decode is not None:
        return LatestStateWork(handler, decode, queue)
    raise ConfigurationError(
        f"{handler!r} is neither a decorated function nor a state with a decode=",
        hint='decorate it: @once(key="order:{event[id]}")',
    )
