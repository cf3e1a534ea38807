"""Connections for event loops: one per loop, on which calls are sent without waiting for earlier replies.

redis-py connects (TLS, credentials, database). Then its transport gets our protocol, which gives each reply to the call
that has waited longest, because Redis replies in order. An exception that a signal handler raises inside the event loop
may lose received bytes without notice, and then every reply would go to the wrong call. So each call is followed by an
ECHO of its own number, and a reply counts only if that number follows it. Only the async client imports this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
import weakref
from asyncio import AbstractEventLoop, Future, TimerHandle, Transport
from collections import deque
from collections.abc import Callable
from typing import Any

import redis
import redis.asyncio.connection

from . import errors as faults
from .address import RedisAddress
from .connection import ConnectionLog, register_for_fork
from .errors import ConnectionLost
from .resp import ProtocolError, RedisError, Reply, ReplyParser


class PendingReply(Future[Reply]):
    """A pending reply. A flow without a task may register a callback, which runs as soon as the reply arrives."""

    timeout = until = 0.0
    mark = b""  # the ECHO that follows its reply
    _callback: Callable[[], None] | None = None

    def promptly(self, call: Callable[[], None]) -> None:
        self._callback = call

    def settle(self, reply: Reply) -> None:
        if not self.done():
            self.set_result(reply)
            self._run_callback()

    def fail(self, error: BaseException) -> None:
        if not self.done():
            self.set_exception(error)
        self._run_callback()  # even with a result: a signal may have interrupted before the callback ran

    def _run_callback(self) -> None:
        """Run the callback once. It is removed first, so that an interrupted flow is released and notices."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class RedisChannel(asyncio.Protocol):
    """One connection."""

    def __init__(self, name: str, connection: Any) -> None:
        self._name = name
        self._connection = connection  # kept alive: its writer closes the transport when it is freed
        self._transport: Transport = connection._writer.transport  # noqa: SLF001 (there is no public access)
        self._waiting: deque[PendingReply] = deque()
        self._alarm: TimerHandle | None = None
        self._replies = ReplyParser()
        self._unmarked: list[Reply] = []  # replies whose mark has not arrived yet
        self._marks = itertools.count(
            int.from_bytes(os.urandom(6), "big")
        )  # random, so that no stored result can contain it
        self._used = False
        self.is_open = True
        self._transport.set_protocol(self)

    def exchange(self, payload: bytes, timeout: float) -> PendingReply:
        if not self.is_open:
            raise ConnectionLost("it was closed while idle", stale=True)
        loop = asyncio.get_running_loop()
        answer = PendingReply(loop=loop)
        answer.timeout, answer.until = timeout, (until := loop.time() + timeout)
        answer.mark = mark = b"%016d" % next(self._marks)
        try:
            self._waiting.append(answer)
            self._transport.write(b"%b*2\r\n$4\r\nECHO\r\n$16\r\n%b\r\n" % (payload, mark))
            if self._alarm is None or until < self._alarm.when():
                self._set_alarm(until)
        except BaseException as error:
            self.close(f"a call was interrupted by {type(error).__name__}")  # it may or may not have been sent
            raise
        return answer

    # ── One timer for all calls: nearly all finish long before, and a timer costs as much as the rest of a call ──

    def _set_alarm(self, until: float) -> None:
        self._cancel_alarm()
        self._alarm = asyncio.get_running_loop().call_at(until, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        if not self._waiting:
            return
        first = min(self._waiting, key=lambda one: one.until)
        if first.until > asyncio.get_running_loop().time():
            self._set_alarm(first.until)
            return
        first.fail(faults.timeout_error(self._name, first.timeout))  # later calls cannot get their replies earlier
        self.close(f"a call got no reply within {first.timeout:.3g} s")

    def _cancel_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def data_received(self, data: bytes) -> None:
        try:
            self._unmarked += self._replies.feed(data)
            while len(self._unmarked) > 1 and self.is_open:
                self._used = True
                reply, mark, *self._unmarked = self._unmarked
                self._deliver(reply, mark)
        except (ProtocolError, ValueError) as error:
            self.close(str(error))
        except BaseException as error:
            self.close(
                f"its replies were interrupted by {type(error).__name__}"
            )  # and can no longer be assigned to calls
            raise

    def _deliver(self, reply: Reply, mark: Reply) -> None:
        if not self._waiting:
            self.close("a reply arrived that no call was waiting for")
        elif isinstance(mark, RedisError):  # for example, ECHO is forbidden
            self._waiting.popleft().fail(faults.error_for(mark, self._name))
        elif mark != self._waiting[0].mark:
            self.close("the reply to another call arrived: data was lost")
        else:
            first = self._waiting[0]
            first.settle(reply)  # before removing it: if a signal handler raises in between, `close` fails it
            if self._waiting and self._waiting[0] is first:
                self._waiting.popleft()

    def eof_received(self) -> None:
        self.close("the server closed it")

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(str(exc or "the server closed it"))

    def close(self, why: str) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._cancel_alarm()
        try:
            self._transport.abort()
        except RuntimeError:  # its loop is closed and runs no callbacks
            _close_socket(self._transport)
        self._connection._reader = self._connection._writer = None  # noqa: SLF001 (so that it does not close it again)
        while self._waiting:
            self._waiting.popleft().fail(ConnectionLost(why, stale=self._used))


class RedisAsyncTransport:
    """Sends calls from event loops. Several loops may share a client: each has its own channel."""

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._log = ConnectionLog(address.name)
        self._closed = False
        self._reset()
        register_for_fork(self)

    def _reset(self) -> None:
        self._channels: weakref.WeakKeyDictionary[AbstractEventLoop, RedisChannel] = weakref.WeakKeyDictionary()
        self._connect_locks: weakref.WeakKeyDictionary[AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()

    async def call(self, payload: bytes, timeout: float, *, retryable: bool) -> Reply:
        """Send a command and return the reply. `retryable`: send it again if an idle connection was closed."""
        deadline = time.monotonic() + timeout
        try:
            channel = self._channels.get(asyncio.get_running_loop())
            if channel is None or not channel.is_open:
                channel = await self._open_channel(timeout)
            return await channel.exchange(payload, timeout)
        except ConnectionLost as error:
            if not self._closed:  # otherwise it was closed on purpose
                self._log.lost(error)
            left = deadline - time.monotonic()
            if not (retryable and error.stale) or left <= 0:
                raise faults.connection_lost_error(error, self._address.name) from error
        try:
            return await (await self._open_channel(left)).exchange(payload, left)
        except ConnectionLost as error:
            raise faults.connection_lost_error(error, self._address.name) from error

    async def _open_channel(self, timeout: float) -> RedisChannel:
        loop = asyncio.get_running_loop()
        channel = self._channels.get(loop)
        if channel is not None and channel.is_open:
            return channel
        self._close_channels_of_closed_loops()
        async with self._connect_locks.setdefault(loop, asyncio.Lock()):
            channel = self._channels.get(loop)
            if channel is None or not channel.is_open:
                channel = self._channels[loop] = await asyncio.ensure_future(
                    self._connect(timeout)
                )  # redis-py needs a task
            if self._closed:  # while connecting
                channel.close("the store was closed")
            return channel

    async def _connect(self, timeout: float) -> RedisChannel:
        connection = self._address.connection(redis.asyncio.connection, timeout)
        try:
            async with asyncio.timeout(timeout):
                await connection.connect()
        except BaseException as error:
            _discard(connection)
            if isinstance(error, redis.RedisError | OSError):
                self._log.lost(error)
                raise faults.connect_error(error, self._address.name, timeout) from error
            raise
        self._log.restored()
        return RedisChannel(self._address.name, connection)

    def drop(self) -> None:
        """Close the channel of this loop, so that the next call reconnects."""
        channel = self._channels.pop(asyncio.get_running_loop(), None)
        if channel is not None:
            channel.close("it leads to a replica")

    async def close(self) -> None:
        """Close the channels of all loops. May be called outside a loop, for example by a sync client."""
        self._closed = True
        current_loop = _running_loop()
        for loop, channel in tuple(self._channels.items()):
            if loop is current_loop or loop.is_closed():
                channel.close("the store was closed")
            else:
                with contextlib.suppress(RuntimeError):  # the loop was closed in the meantime
                    loop.call_soon_threadsafe(channel.close, "the store was closed")
        self._channels.clear()

    def _close_channels_of_closed_loops(self) -> None:
        """Close channels whose loop has ended: a loop does not announce that, for example after `asyncio.run`."""
        for loop, channel in tuple(self._channels.items()):
            if loop.is_closed():
                channel.close("its loop was closed")
                self._channels.pop(loop, None)

    def after_fork_in_child(self) -> None:
        from .connection import _abandoned

        _abandoned.extend(self._channels.values())
        self._reset()


def _discard(connection: Any) -> None:
    """Close a connection whose setup failed: redis-py would leave the socket open."""
    writer, connection._reader, connection._writer = connection._writer, None, None  # noqa: SLF001 (as above)
    if writer is not None:
        writer.transport.abort()


def _running_loop() -> AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _close_socket(transport: Any) -> None:
    """Close the socket of a transport whose loop is closed. Otherwise Python warns about it at exit."""
    plain = getattr(getattr(transport, "_ssl_protocol", None), "_transport", transport)
    finish = getattr(plain, "_call_connection_lost", None)
    if finish is not None:
        with contextlib.suppress(Exception):  # the transport is no longer used
            finish(None)
