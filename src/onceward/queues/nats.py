"""NATS JetStream: a durable pull consumer, shared by name. `nack` is `nak(delay)`, `extend` is in-progress.

This adapter sends JetStream's own requests: one call for all available messages (`no_wait`). If there are none, it
waits for one message and then takes those that arrived with it. The client's `fetch` would wait for a full batch.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onceward.errors import ConfigurationError
from onceward.protocol.extras import import_extra

from .message import Delivery, Message

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

MESSAGE_ID_HEADER = "Nats-Msg-Id"
"""The header with the sender's id, by which JetStream also recognises duplicates."""

STATUS_HEADER = "Status"
NO_MESSAGES = ("404", "408")  # none available, or none within the time
RESPONSE_TIMEOUT = 5.0  # seconds until the server counts as unreachable


class NatsQueue:
    """A durable consumer of a stream. It is created if missing; an existing one is used unchanged.

    `servers` are one or more URLs, and `durable` is the name of the consumer. `subject` filters the `stream`. A new
    consumer redelivers what is not settled within `ack_deadline` seconds. `dead_letter` is the subject of dead letters,
    which a stream must capture. `options` are passed to `nats.connect`.
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
        self._consumer_exists = False  # on the server

    async def open(self) -> None:
        nats = import_extra("nats", "NATS needs nats-py", 'pip install "onceward[nats]"')
        options = {"max_reconnect_attempts": -1, "error_cb": _ignore, **self._options}
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT):  # with unlimited reconnects, connect would wait indefinitely
                client: Client = await nats.connect(self._servers, **options)
        except TimeoutError:
            raise ConnectionError(f"no NATS server responds for {self.name}") from None
        self._client = client
        self._context = client.jetstream()
        await self._find_consumer()
        self._inbox = client.new_inbox()
        self._arrival = asyncio.Event()
        self._arrived.clear()
        await client.subscribe(self._inbox, cb=self._on_message)

    async def _find_consumer(self) -> None:
        config = await _get_or_create_consumer(
            self._context, self._stream, self._durable, self._subject, self.ack_deadline
        )
        self.ack_deadline = config.ack_wait
        _check(config, self.name)
        self._consumer_exists = True

    async def close(self) -> None:
        if self._client is None or self._client.is_closed:
            return
        try:
            if self._client.is_connected:
                await self._client.flush(int(RESPONSE_TIMEOUT))
        finally:
            await self._client.close()

    async def _on_message(self, message: Msg) -> None:
        self._arrived.append(message)
        self._arrival.set()

    async def receive(self, max_messages: int, wait: float) -> list[Delivery]:
        if not self._consumer_exists:
            await self._find_consumer()
        found = self._drain(max_messages) or await self._request(max_messages, {"no_wait": True}, RESPONSE_TIMEOUT)
        if found or wait <= 0:
            return found
        first = await self._request(1, {"expires": int(wait * 1e9)}, wait + RESPONSE_TIMEOUT)
        more = (
            await self._request(max_messages - 1, {"no_wait": True}, RESPONSE_TIMEOUT)
            if first and max_messages > 1
            else []
        )
        return first + more

    async def _request(self, max_messages: int, mode: Mapping[str, Any], timeout: float) -> list[Delivery]:
        """Send one pull request and return its messages: as many as requested, or those before the end of the batch."""
        client = self._connected()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._durable}"
        await client.publish(subject, json.dumps({"batch": max_messages, **mode}).encode(), reply=self._inbox)
        found: list[Delivery] = []
        try:
            async with asyncio.timeout(timeout):
                while len(found) < max_messages:
                    await self._arrival.wait()
                    self._arrival.clear()
                    while self._arrived and len(found) < max_messages:
                        message = self._arrived.popleft()
                        if not self._is_end_of_batch(message):
                            found.append(_delivery(message))
                        elif not self._arrived:
                            return found
        except TimeoutError:
            if not found:
                raise ConnectionError("NATS does not respond") from None
        return found

    def _drain(self, max_messages: int) -> list[Delivery]:
        """Return messages that arrived too late for the request that they belong to."""
        found: list[Delivery] = []
        while self._arrived and len(found) < max_messages:
            message = self._arrived.popleft()
            if not self._is_end_of_batch(message):
                found.append(_delivery(message))
        return found

    def _is_end_of_batch(self, message: Msg) -> bool:
        """Return whether this is the status that ends a batch, not a message. Raise on any other status."""
        if message.reply:  # only messages can be acknowledged, whatever their headers contain
            return False
        status = (message.headers or {}).get(STATUS_HEADER)
        if status is not None and status not in NO_MESSAGES:
            self._consumer_exists = False  # it may have been deleted
            description = (message.headers or {}).get("Description", "")
            raise ConnectionError(f"JetStream returned {status} {description}")
        return status is not None

    def _connected(self) -> Client:
        if self._client is None or not self._client.is_connected:
            raise ConnectionError("no connection to NATS")
        return self._client

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        self._connected()
        for delivery in deliveries:
            await delivery.handle.ack()

    async def nack(self, delivery: Delivery, delay: float) -> None:
        self._connected()
        await delivery.handle.nak(delay=delay or None)

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        self._connected()
        for delivery in deliveries:
            if not delivery.handle.is_acked:
                await delivery.handle.in_progress()

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        message = delivery.message
        if self._dead_letter is None:
            raise ConfigurationError(f"{self.name} has no dead letter subject", hint='pass dead_letter="orders.dead"')
        number = delivery.handle.metadata.sequence.stream
        headers = {
            **message.headers,
            MESSAGE_ID_HEADER: f"dead/{self.name}/{number}/{message.id}",  # JetStream drops a second copy
            "Onceward-Message-Id": message.id,
            "Onceward-Reason": " ".join(reason.split()),
        }
        fits = len(message) + _size(headers) <= self._connected().max_payload  # or the server closes the connection
        await self._context.publish(self._dead_letter, message.body, headers=headers if fits else None)
        await self.ack([delivery])


def _delivery(message: Msg) -> Delivery:
    headers = message.headers or {}
    metadata = message.metadata
    id = headers.get(MESSAGE_ID_HEADER) or f"{metadata.stream}/{metadata.sequence.stream}"
    return Delivery(Message(message.data, id, headers, metadata.num_delivered), message)


def _size(headers: Mapping[str, str]) -> int:
    """Return an upper bound of the encoded size in bytes."""
    return 64 + sum(len(f"{name}: {value}\r\n".encode()) for name, value in headers.items())


async def _get_or_create_consumer(
    context: JetStreamContext, stream: str, durable: str, subject: str | None, ack_wait: float | None
) -> Any:
    """Return the configuration of the consumer, creating it if missing."""
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
        raise ConfigurationError(f"{name} does not wait for acknowledgements", hint="set its ack_policy to explicit")
    if config.deliver_subject:
        raise ConfigurationError(f"{name} is a push consumer", hint="create a pull consumer, or pass another durable=")
    if config.max_deliver is not None and config.max_deliver > 0:
        raise ConfigurationError(
            f"{name} drops a message after {config.max_deliver} deliveries, and delayed deliveries count",
            hint="set its max_deliver to -1, and max_attempts= on the function",
        )


async def _ignore(_: Exception) -> None:
    """Suppress the client's own error output: errors are raised by the calls that fail."""
