"""A consumer: takes deliveries, does the work of each once, and tells the broker what becomes of it, by `rule`.

    receive a batch → claim all of its keys in one call → run each → rule → ack, later, or aside

While it is worked on, the lease is kept alive towards the store and the delivery towards the broker. Whatever is not
settled, because this process dies or the broker is away, is delivered again: then the record tells what happened.
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
from onceward.errors import ConfigurationError, StoreError
from onceward.latest.api import Kept
from onceward.observe.log import log_raised
from onceward.operations.decorator import Guarded
from onceward.protocol.duration import Duration, microseconds
from onceward.protocol.policy import SECOND

from .batch_work import Batch, BatchWork
from .broker import Broker
from .function_work import Decode, FunctionWork
from .in_flight import InFlight
from .latest_work import StateWork
from .message import Delivery
from .port import Queue
from .settlement_rule import Ack, DeadLetter, Pace, Result, Retry, rule

DEFAULT_CONCURRENCY = 10
GATHERING = 0.02  # seconds to let more of a batch finish, so that the next one is not a single message


class Consumer:
    """Does the messages of a queue with a decorated function, up to `concurrency` (10) side by side.

    The function's first parameter gets the event: the body, read as JSON of the type that it is annotated with, or what
    `decode(message)` makes of it. A second one, `message`, gets the message with its id and headers. The
    key may name both: key=["{event.id}", "{message.id}"] is the event's own id, else the transport's. Without a key= it
    is the latter.

    In the place of a function there may be a state, `once.state(…)`: then `decode(message)` gives the `StateEvent` that
    the message brings, and a batch is applied in one call. Or a `Batch`, whose function gets many events
    at once; `concurrency` is two batches then, so that one is fetched while the other is worked on.

    What has to come again waits for the function's `retry_delay`; without one, and where nobody can say how long, for
    `first_delay`, doubled each time up to `longest_delay`.
    """

    lookup = 1.0
    """Seconds that one call waits for messages: so long it may take to notice that it shall stop."""

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
            raise ConfigurationError(f"concurrency={concurrency} would take no message", hint="give at least 1")
        self.queue = queue
        self._broker = Broker(queue)
        self.concurrency = concurrency
        self.pace = Pace(
            microseconds(first_delay, "first_delay") / SECOND, microseconds(longest_delay, "longest_delay") / SECOND
        )
        self._work = _work(handler, decode, concurrency, queue.name)
        self._engine = self._work.engine
        self.client: Any = self._work.client
        self._stopping = False
        self._away = self._down = 0  # times in a row that the broker, or the store, could not be reached

    def stop(self) -> None:
        """Take no more messages; what is in hand is finished. May be called from a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """`consume` as the whole of a process: until SIGTERM or Ctrl-C, and closes the client at the end."""
        from .process import run_all  # here, because it imports us

        run_all([self])

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop, or its client was."""
        return self._stopping or self._engine.stopping

    def __repr__(self) -> str:
        return f"<Consumer of {self.queue.name} by {self._work.name}, {self.concurrency} at once>"

    async def consume(self) -> None:
        """Work until `stop()`, then finish what is in hand. A cancellation leaves it to the next consumer."""
        await self._open()
        hand = InFlight(self._broker, self.queue.ack_deadline, self._trouble)
        batches: set[asyncio.Task[None]] = set()
        try:
            while not self.stopping:
                deliveries = await self._receive(hand)
                if deliveries:
                    batches.add(asyncio.create_task(self._handle(hand, deliveries)))
                batches = {batch for batch in batches if not batch.done() or batch.result()}  # raises what it raised
            await asyncio.gather(*batches)
            await hand.acknowledged()
        finally:
            for batch in batches:
                batch.cancel()
            if batches:
                await asyncio.wait(batches)
            await hand.close()
            self._work.close()
            await self._close()

    async def _close(self) -> None:
        """The work is over: a broker that is away now is no reason to fail."""
        try:
            await self.queue.close()
        except Exception as error:  # noqa: BLE001 (what was received and not settled goes back all the same)
            self._trouble("close", error)

    async def _open(self) -> None:
        """Whoever cannot begin leaves no connection behind."""
        try:
            await self.queue.open()
        except BaseException:
            with contextlib.suppress(Exception):
                await self.queue.close()
            raise

    async def _receive(self, hand: InFlight) -> list[Delivery]:
        """The next batch; none if there are no messages, or if it is better to wait."""
        if self._away or self._down:
            await self._rest(self.pace.after(max(self._away, self._down)))
        await hand.fewer(than=self.concurrency // 2 + 1, patience=GATHERING)
        await hand.fewer(than=self.concurrency, patience=self.lookup)
        room = min(self.concurrency - len(hand), self._work.largest)
        if self.stopping or room <= 0:
            return []
        away, self._away = self._away, 0  # before the call: what cannot be put off meanwhile counts as well
        try:
            deliveries = await self._broker.receive(room, self.lookup)
        except Exception as error:  # noqa: BLE001 (the broker is away; it may come back)
            self._away = away + 1
            self._trouble("receive", error)
            return []
        for delivery in deliveries:
            hand.take(delivery)
        return deliveries

    async def _rest(self, seconds: float) -> None:
        """In polls: a signal handler may say that we shall stop, and must not ring a bell itself."""
        for _ in range(math.ceil(seconds / self.lookup)):
            if not self.stopping:
                await asyncio.sleep(min(seconds, self.lookup))

    async def _handle(self, hand: InFlight, deliveries: Sequence[Delivery]) -> None:
        """One batch. The store's trouble counts once, however many deliveries met it."""
        down = False
        told: object = None

        async def settle(delivery: Delivery, outcome: Result) -> None:
            nonlocal down, told
            down = down or isinstance(outcome, StoreError)
            raised = outcome if isinstance(outcome, Exception) else getattr(outcome, "exception", None)
            if raised is not told:  # a function of batches raises for all of them at once
                told = raised
                log_raised(raised, delivery.message.id)
            await self._settle(hand, delivery, outcome)

        try:
            await self._work.do(deliveries, hand, settle)
        finally:
            self._down = self._down + 1 if down else 0
            for delivery in deliveries:
                hand.drop(delivery)

    async def _settle(self, hand: InFlight, delivery: Delivery, outcome: Result) -> None:
        """Do what the rule says. What cannot be said to the broker now is said at the next delivery."""
        ruled = rule(outcome, delivery.message.deliveries, self.pace)
        ruling = await self._set_aside(delivery, ruled) if isinstance(ruled, DeadLetter) else ruled
        if isinstance(ruling, Ack):
            hand.done(delivery)
            return
        hand.drop(delivery)
        if isinstance(ruling, Retry):
            self._tell("delivered_later", delivery, f"{ruling.reason}: in {ruling.seconds:.1f} s")
            try:
                await self._broker.later(delivery, ruling.seconds)
            except Exception as error:  # noqa: BLE001 (then it comes again by the broker's own deadline)
                self._away = max(self._away, 1)  # it may come at once, and over and over: rest before the next
                self._trouble("later", error)

    async def _set_aside(self, delivery: Delivery, why: DeadLetter) -> Ack | Retry | None:
        """Dead letter, or parked; only then acknowledged. None: the dead letter has settled it."""
        reason = f"{why.kind}: {why.reason}"
        try:
            if self.queue.dead_letters:
                await self._broker.dead_letter(delivery, reason)
                self._tell("dead_lettered", delivery, why.kind)  # its text may quote the body
                return None
            if why.parked or await self._work.park(delivery.message, why.kind, why.reason):
                return Ack()
        except Exception as error:  # noqa: BLE001 (neither broker nor store would keep it: it has to come again)
            self._trouble("set aside", error)
        return Retry(self.pace.after(delivery.message.deliveries), f"not set aside yet: {why.kind}")

    def _tell(self, name: str, delivery: Delivery, reason: str) -> None:
        bus = self._engine.bus
        if bus.wants(name):
            bus.emit(Event(name=name, key=delivery.message.id, scope=self.queue.name, reason=reason))

    def _trouble(self, what: str, error: Exception) -> None:
        bus = self._engine.bus
        if bus.wants("queue_failed"):
            bus.emit(
                Event(
                    name="queue_failed",
                    key="",
                    scope=self.queue.name,
                    reason=what,
                    error=f"{type(error).__qualname__}: {message_of(error)}",
                )
            )


def _work(handler: Any, decode: Decode | None, concurrency: int, queue: str) -> FunctionWork | StateWork | BatchWork:
    if isinstance(handler, Guarded):
        return FunctionWork(handler, decode, concurrency, queue)
    if isinstance(handler, Batch):
        return BatchWork(handler, decode or msgspec.json.decode, queue)
    if isinstance(handler, Kept) and decode is not None:
        return StateWork(handler, decode, queue)
    raise ConfigurationError(
        f"{handler!r} is no decorated function, and no state with a decode=",
        hint='decorate it: @once(key="order:{event[id]}")',
    )
