"""What the three kinds of handlers share: how their flows run, and how a message is parked."""

from __future__ import annotations

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from onceward.client.base import BaseClient
from onceward.engine.engine import Engine
from onceward.engine.job import Job
from onceward.keys.key import Scope, make_key
from onceward.protocol.message_note import BODY, MESSAGE, MESSAGE_SUFFIX, QUEUE
from onceward.protocol.policy import Policy
from onceward.results.codec import Codec
from onceward.runtime.threads import run

from .claims import park_message
from .in_flight import InFlight
from .message import Delivery, Message
from .result_batch import Settle
from .settlement import Unreadable

T = TypeVar("T")

Decode = Callable[[Message], Any]
MAX_BATCH = 256  # a good size for one store call
MAX_NOTE_LENGTH = 500  # characters


class FlowRunner:
    """Runs a client's flows on the event loop if `threads` is 0, otherwise in threads, where they may block."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None

    async def __call__(self, flow: Coroutine[Any, Any, T]) -> T:
        if not self._threads:
            return await flow
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "onceward-consumer")
        return await asyncio.get_running_loop().run_in_executor(self._pool, run, flow)

    def close(self) -> None:
        """Stop accepting flows. Flows that are already running in a thread continue."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None


class Work(ABC):
    """What a consumer does with the messages of a `queue`. `threads`: see `FlowRunner`."""

    largest = MAX_BATCH

    def __init__(
        self, client: BaseClient, engine: Engine, name: str, queue: str, decode: Decode, *, threads: int
    ) -> None:
        self.client = client
        self.engine = engine
        self.name = name
        self._queue = queue
        self._decode = decode
        self._run_flow = FlowRunner(threads)

    @abstractmethod
    async def process(self, deliveries: Sequence[Delivery], in_flight: InFlight, settle: Settle) -> None:
        """Process a batch, and settle each of its deliveries."""

    @abstractmethod
    def _record_settings(self) -> tuple[Scope, Policy, Codec]:
        """Return the scope, policy and codec of the records of this work."""

    def _decode_or_fail(self, message: Message) -> Any:
        try:
            return self._decode(message)
        except Exception as error:  # noqa: BLE001 (`decode` is user code and the message is untrusted)
            return Unreadable(error)

    def _source_note(self, message: Message) -> dict[str, str]:
        """Return the note of a record: the message and the queue that its work came from."""
        return {MESSAGE: message.id[:MAX_NOTE_LENGTH], QUEUE: self._queue[:MAX_NOTE_LENGTH]}

    async def park(self, message: Message, kind: str, reason: str) -> bool:
        """Store a PARKED record of a message that cannot be processed. Return False if that is not possible now.

        Its key identifies the message, not the work: the key of the work may already have a record with another
        payload.
        """
        work, policy, codec = self._record_settings()
        body = f"sha256:{hashlib.sha256(message).hexdigest()}"
        scope = Scope(work.app, f"{work.operation}{MESSAGE_SUFFIX}", work.tenant)
        key = make_key(scope, [self._queue, message.id, body], message.id or body)  # senders may reuse an id
        job = Job(key, policy, codec, note={**self._source_note(message), BODY: body})
        return await self._run_flow(park_message(self.engine, job, kind, reason))

    def close(self) -> None:
        self._run_flow.close()
