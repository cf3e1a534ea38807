"""A connection of the adapter's own, for the two calls that every batch makes.

redis-py's parser costs as much as all the rest that is done for a message.
redis-py connects (TLS, credentials, database); after that we speak as the store does.
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
from onceward.stores.redis.errors import Cut
from onceward.stores.redis.resp import RedisError, command

OURS: Final = {"protocol": 2}
"""It never pushes anything that nobody has asked for."""

OF_A_POOL: Final = frozenset({"max_connections", "timeout", "maint_notifications_config"})

_parse_url: Callable[[str], Mapping[str, Any]] = parse_url


class StreamChannel:
    """Connects with the first call, and anew with the next one after it was lost."""

    def __init__(self, url: str, options: Mapping[str, Any], name: str, seconds: float) -> None:
        """`options` are those of a pool of redis-py; as there, what the URL says counts more."""
        settings = {**options, **_parse_url(url), **OURS}
        self._make = settings.pop("connection_class", Connection)
        self._settings = {name: value for name, value in settings.items() if name not in OF_A_POOL}
        self._name = name
        self._seconds = seconds
        self._line: RedisChannel | None = None
        self._dialling = asyncio.Lock()
        self._closed = False

    async def call(self, *parts: bytes) -> Any:
        """The server's reply. Asked once more if the connection had ended while it lay idle.

        Both calls may be made twice: what was read for nobody stays pending, and is taken over later.
        """
        payload = command(parts)
        try:
            reply = await self._exchange(payload)
        except Cut as error:
            if not error.stale:
                raise Disconnected(f"{self._name}: {error}") from error
            try:
                reply = await self._exchange(payload)
            except Cut as again:
                raise Disconnected(f"{self._name}: {again}") from again
        if isinstance(reply, RedisError):
            raise ResponseError(reply.text)
        return reply

    async def _exchange(self, payload: bytes) -> Any:
        if self._closed:
            raise Disconnected(f"{self._name} was closed")
        line = self._line
        if line is None or not line.is_open:
            line = await self._dialled()
        try:
            return await line.exchange(payload, self._seconds)
        except StoreError as error:  # it is late; that it is no store is known to us only
            raise Disconnected(f"{self._name}: no answer within {self._seconds:.3g} s") from error

    async def _dialled(self) -> RedisChannel:
        """Dead letters are acknowledged side by side: one of them connects, for all."""
        async with self._dialling:
            if self._line is None or not self._line.is_open:
                self._line = await self._dial()
            return self._line

    async def _dial(self) -> RedisChannel:
        connection = self._make(**self._settings)
        try:
            await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        line = RedisChannel(self._name, connection)
        if self._closed:  # meanwhile
            line.close("the queue was closed")
        return line

    def close(self) -> None:
        self._closed = True
        if self._line is not None:
            self._line.close("the queue was closed")
