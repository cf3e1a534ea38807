"""NATS JetStream: a pull consumer that is durable and shared by name. `later` is `nak(delay)`, `extend` is in-progress.

Messages are asked for by JetStream's own requests: what is there now, in one call (`no_wait`); if nothing is, one
message as soon as there is one, and then what came with it. The client's `fetch` would wait for a batch to be full.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onceward.errors import ConfigurationError, MissingExtra

from .message import Delivery, Message

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

SENDERS_ID = "Nats-Msg-Id"
"""The header by which senders tell JetStream, and us, that two messages are one."""

STATUS = "Status"
NO_MESSAGES = ("404", "408")  # there are none, or there were none in that time
ANSWER = 5.0  # seconds for a server to say what it has: else it is away


class NatsQueue:
    """A durable consumer of a stream. It is made if there is none; one that exists is taken as it is.

    `subject` filters the stream. `dead_letter` is the subject of dead letters: a stream has to hold it. `options` are
    those of `nats.connect`.
    """

    def __init__(
        self,
        servers: str | list[str] = "nats://127.0.0.1:4222",
        *,
        stream: str,
        durable: str,
        subject: str | None = None,
        dead_letter: str | None = None,
        ack_deadline: float = 30.0,
        **options: Any,
    ) -> None:
        self.name = f"nats/{stream}/{durable}"
        self.ack_deadline: float | None = ack_deadline
        self.dead_letters = dead_letter is not None
        self._servers = servers
        self._stream = stream
        self._durable = durable
        self._subject = subject
        self._dead_letter = dead_letter
        self._options = options
        self._arrived: deque[Msg] = deque()
        self._client: Client | None = None
        self._is_found = False  # the consumer, at the server

    async def open(self) -> None:
        try:
            import nats
        except ImportError as error:
            raise MissingExtra("NATS needs nats-py", hint='pip install "onceward[nats]"') from error
        options = {"max_reconnect_attempts": -1, "error_cb": _ignore, **self._options}
        try:
            async with asyncio.timeout(ANSWER):  # whoever reconnects for ever would also begin for ever
                self._client = client = await nats.connect(self._servers, **options)
        except TimeoutError:
            raise ConnectionError(f"no NATS server answers for {self.name}") from None
        self._context = client.jetstream()
        await self._find_consumer()
        self._inbox = client.new_inbox()
        self._bell = asyncio.Event()
        self._arrived.clear()
        await client.subscribe(self._inbox, cb=self._arrive)

    async def _find_consumer(self) -> None:
        config = await _consumer(self._context, self._stream, self._durable, self._subject, self.ack_deadline)
        self.ack_deadline = config.ack_wait
        _check(config, self.name)
        self._is_found = True

    async def close(self) -> None:
        if self._client is None or self._client.is_closed:
            return
        try:
            if self._client.is_connected:
                await self._client.flush(int(ANSWER))
        finally:
            await self._client.close()

    async def _arrive(self, message: Msg) -> None:
        self._arrived.append(message)
        self._bell.set()

    async def receive(self, most: int, wait: float) -> list[Delivery]:
        if not self._is_found:
            await self._find_consumer()
        found = self._drain(most) or await self._ask(most, {"no_wait": True}, ANSWER)
        if found or wait <= 0:
            return found
        first = await self._ask(1, {"expires": int(wait * 1e9)}, wait + ANSWER)
        more = await self._ask(most - 1, {"no_wait": True}, ANSWER) if first and most > 1 else []
        return first + more

    async def _ask(self, most: int, how: Mapping[str, Any], patience: float) -> list[Delivery]:
        """One request, and all that it brings: as many as it may, or fewer and the word that there are no more."""
        client = self._connected()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._durable}"
        await client.publish(subject, json.dumps({"batch": most, **how}).encode(), reply=self._inbox)
        found: list[Delivery] = []
        try:
            async with asyncio.timeout(patience):
                while len(found) < most:
                    await self._bell.wait()
                    self._bell.clear()
                    while self._arrived and len(found) < most:
                        message = self._arrived.popleft()
                        if not self._is_last_word(message):
                            found.append(_delivery(message))
                        elif not self._arrived:
                            return found
        except TimeoutError:
            if not found:
                raise ConnectionError("NATS does not answer") from None
        return found

    def _drain(self, most: int) -> list[Delivery]:
        """What came too late for the request that it was meant for."""
        found: list[Delivery] = []
        while self._arrived and len(found) < most:
            message = self._arrived.popleft()
            if not self._is_last_word(message):
                found.append(_delivery(message))
        return found

    def _is_last_word(self, message: Msg) -> bool:
        """Whether it is no message, but says that there are no more. Any other word is trouble."""
        if message.reply:  # what can be acknowledged is a message, whatever its headers say
            return False
        status = (message.headers or {}).get(STATUS)
        if status is not None and status not in NO_MESSAGES:
            self._is_found = False  # it may have been deleted
            told = (message.headers or {}).get("Description", "")
            raise ConnectionError(f"JetStream answered {status} {told}")
        return status is not None

    def _connected(self) -> Client:
        if self._client is None or not self._client.is_connected:
            raise ConnectionError("no connection to NATS")
        return self._client

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        self._connected()
        for delivery in deliveries:
            await delivery.handle.ack()

    async def later(self, delivery: Delivery, seconds: float) -> None:
        self._connected()
        await delivery.handle.nak(delay=seconds or None)

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        self._connected()
        for delivery in deliveries:
            if not delivery.handle.is_acked:
                await delivery.handle.in_progress()

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        message = delivery.message
        if self._dead_letter is None:
            raise ConfigurationError(f"{self.name} has no dead letters", hint='give dead_letter="orders.dead"')
        number = delivery.handle.metadata.sequence.stream
        told = {
            **message.headers,
            SENDERS_ID: f"dead/{self.name}/{number}/{message.id}",  # a second attempt is known, and nothing else
            "Onceward-Message-Id": message.id,
            "Onceward-Reason": " ".join(reason.split()),
        }
        fits = len(message) + _size(told) <= self._connected().max_payload  # else the server would end the connection
        await self._context.publish(self._dead_letter, message.body, headers=told if fits else None)
        await self.ack([delivery])


def _delivery(message: Msg) -> Delivery:
    headers = message.headers or {}
    told = message.metadata
    id = headers.get(SENDERS_ID) or f"{told.stream}/{told.sequence.stream}"
    return Delivery(Message(message.data, id, headers, told.num_delivered), message)


def _size(headers: Mapping[str, str]) -> int:
    """Bytes on the wire, at most."""
    return 64 + sum(len(f"{name}: {value}\r\n".encode()) for name, value in headers.items())


async def _consumer(
    context: JetStreamContext, stream: str, durable: str, subject: str | None, ack_wait: float | None
) -> Any:
    """The configuration of the consumer, which is made if there is none."""
    from nats.js.api import AckPolicy, ConsumerConfig
    from nats.js.errors import NotFoundError

    try:
        found = await context.consumer_info(stream, durable)
    except NotFoundError:
        config = ConsumerConfig(
            durable_name=durable,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ack_wait,
            max_deliver=-1,
            filter_subject=subject,
        )
        found = await context.add_consumer(stream, config)
    return found.config


def _check(config: Any, name: str) -> None:
    from nats.js.api import AckPolicy

    if config.ack_policy != AckPolicy.EXPLICIT:
        raise ConfigurationError(f"{name} does not wait for acknowledgements", hint="its ack_policy has to be explicit")
    if config.deliver_subject:
        raise ConfigurationError(f"{name} is pushed to a subject", hint="make a pull consumer, or name another durable")
    if config.max_deliver is not None and config.max_deliver > 0:
        raise ConfigurationError(
            f"{name} drops a message after {config.max_deliver} deliveries, and those that had to wait count",
            hint="set its max_deliver to -1, and max_attempts= at the function",
        )


async def _ignore(_: Exception) -> None:
    """What goes wrong is raised where it is asked for; the client would print it as well."""
