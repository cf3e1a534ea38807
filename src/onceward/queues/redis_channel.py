"""A dedicated connection for the two calls that every batch makes.

redis-py's parser costs as much time per message as everything else together. So redis-py only connects (TLS,
credentials, database); after that this module sends and parses commands as the Redis store does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from redis.asyncio.connection import Connection, parse_url
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import ResponseError

from onceward.errors import StoreError
from onceward.stores.redis.async_connection import RedisChannel
from onceward.stores.redis.errors import ConnectionLost
from onceward.stores.redis.resp import RedisError, command

REQUIRED_OPTIONS: Final = {"protocol": 2}
"""With protocol 2, the server sends no unrequested push messages."""

POOL_OPTIONS: Final = frozenset({"max_connections", "timeout", "maint_notifications_config"})

_parse_url: Callable[[str], Mapping[str, Any]] = parse_url


class StreamChannel:
    """Connects at the first call, and reconnects at the next call after the connection was lost."""

    def __init__(self, url: str, options: Mapping[str, Any], name: str, timeout: float) -> None:
        """Accept the options of a redis-py pool. As in redis-py, the URL takes precedence."""
        settings = {**options, **_parse_url(url), **REQUIRED_OPTIONS}
        self._connection_class = settings.pop("connection_class", Connection)
        self._settings = {name: value for name, value in settings.items() if name not in POOL_OPTIONS}
        self._name = name
        self._timeout = timeout
        self._channel: RedisChannel | None = None
        self._connecting = asyncio.Lock()
        self._closed = False

    async def call(self, *parts: bytes) -> Any:
        """Send a command and return the reply. Retry once if an idle connection turns out to be closed.

        Both commands may be sent twice: entries read by a lost call stay pending and are taken over later.
        """
        payload = command(parts)
        try:
            reply = await self._exchange(payload)
        except ConnectionLost as error:
            if not error.stale:
                raise Disconnected(f"{self._name}: {error}") from error
            try:
                reply = await self._exchange(payload)
            except ConnectionLost as again:
                raise Disconnected(f"{self._name}: {again}") from again
        if isinstance(reply, RedisError):
            raise ResponseError(reply.text)
        return reply

    async def _exchange(self, payload: bytes) -> Any:
        if self._closed:
            raise Disconnected(f"{self._name} was closed")
        channel = self._channel
        if channel is None or not channel.is_open:
            channel = await self._connected()
        try:
            return await channel.exchange(payload, self._timeout)
        except StoreError as error:  # a timeout; the channel reports it as a store error
            raise Disconnected(f"{self._name}: no answer within {self._timeout:.3g} s") from error

    async def _connected(self) -> RedisChannel:
        """Return the open channel. Of several concurrent callers, one connects for all."""
        async with self._connecting:
            if self._channel is None or not self._channel.is_open:
                self._channel = await self._connect()
            return self._channel

    async def _connect(self) -> RedisChannel:
        connection = self._connection_class(**self._settings)
        try:
            await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        channel = RedisChannel(self._name, connection)
        if self._closed:  # while connecting
            channel.close("the queue was closed")
        return channel

    def close(self) -> None:
        self._closed = True
        if self._channel is not None:
            self._channel.close("the queue was closed")
