"""Connections for an event loop: one a loop, on which calls follow each other without waiting for replies.

redis-py connects (TLS, credentials, database); then its transport gets a protocol of ours, which hands each reply to
the call that has waited longest: Redis answers in order. A signal that raises somewhere in the loop's own code may cost
us bytes of which we never hear, and then every reply would go to the call before its own. So each call is followed by
an ECHO of a number of its own, and a reply counts only if that comes behind it. Only the async face imports this.
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
from .connection import ConnectionTrouble, inherit_nothing
from .errors import Cut
from .resp import Garbage, RedisError, Replies, Reply


class Pending(Future[Reply]):
    """A reply to come. Whoever runs without a task may ask to be called promptly: in the turn in which it comes."""

    seconds = until = 0.0
    mark = b""  # what comes behind its reply
    _then: Callable[[], None] | None = None

    def promptly(self, call: Callable[[], None]) -> None:
        self._then = call

    def settle(self, reply: Reply) -> None:
        if not self.done():
            self.set_result(reply)
            self._go_on()

    def fail(self, error: BaseException) -> None:
        if not self.done():
            self.set_exception(error)
        self._go_on()  # also who has a reply: a signal may have struck before they were called

    def _go_on(self) -> None:
        """If a signal strikes here, nobody may know whom we were to call: so it is gone at once, and notices."""
        then, self._then = self._then, None
        if then is not None:
            then()


class RedisChannel(asyncio.Protocol):
    """One connection."""

    def __init__(self, name: str, connection: Any) -> None:
        self._name = name
        self._connection = connection  # kept alive: its writer closes the transport when it goes
        self._transport: Transport = connection._writer.transport  # noqa: SLF001 (there is no other way to it)
        self._waiting: deque[Pending] = deque()
        self._alarm: TimerHandle | None = None
        self._replies = Replies()
        self._unmarked: list[Reply] = []  # a reply whose mark has not come yet
        self._marks = itertools.count(int.from_bytes(os.urandom(6), "big"))  # nobody can have written it into a result
        self._used = False
        self.is_open = True
        self._transport.set_protocol(self)

    def exchange(self, payload: bytes, seconds: float) -> Pending:
        if not self.is_open:
            raise Cut("it ended while it lay idle", stale=True)
        loop = asyncio.get_running_loop()
        answer = Pending(loop=loop)
        answer.seconds, answer.until = seconds, (until := loop.time() + seconds)
        answer.mark = mark = b"%016d" % next(self._marks)
        try:
            self._waiting.append(answer)
            self._transport.write(b"%b*2\r\n$4\r\nECHO\r\n$16\r\n%b\r\n" % (payload, mark))
            if self._alarm is None or until < self._alarm.when():
                self._mind(until)
        except BaseException as error:
            self.close(f"a call was interrupted by {type(error).__name__}")  # nobody knows whether it was sent
            raise
        return answer

    # ── one alarm for all: nearly every call is answered long before, and setting one costs as much as the rest ──

    def _mind(self, until: float) -> None:
        self._silence()
        self._alarm = asyncio.get_running_loop().call_at(until, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if not self._waiting:
            return
        first = min(self._waiting, key=lambda one: one.until)
        if first.until > asyncio.get_running_loop().time():
            self._mind(first.until)
            return
        first.fail(faults.late(self._name, first.seconds))  # who is late makes everybody late who came after
        self.close(f"a call got no answer within {first.seconds:.3g} s")

    def _silence(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def data_received(self, data: bytes) -> None:
        try:
            self._unmarked += self._replies.feed(data)
            while len(self._unmarked) > 1 and self.is_open:
                self._used = True
                reply, mark, *self._unmarked = self._unmarked
                self._hand_over(reply, mark)
        except (Garbage, ValueError) as error:
            self.close(str(error))
        except BaseException as error:
            self.close(f"its replies were interrupted by {type(error).__name__}")  # and are not told apart any more
            raise

    def _hand_over(self, reply: Reply, mark: Reply) -> None:
        if not self._waiting:
            self.close("a reply came that nobody had asked for")
        elif isinstance(mark, RedisError):  # who may not ECHO is told so
            self._waiting.popleft().fail(faults.explain(mark, self._name))
        elif mark != self._waiting[0].mark:
            self.close("the reply to another call came: something was lost on the way")
        else:
            first = self._waiting[0]
            first.settle(reply)  # before it leaves: a signal may strike here, and then all who wait are told
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
        self._silence()
        try:
            self._transport.abort()
        except RuntimeError:  # its loop is closed, and calls nobody back
            _bury(self._transport)
        self._connection._reader = self._connection._writer = None  # noqa: SLF001 (so that it does not close once more)
        while self._waiting:
            self._waiting.popleft().fail(Cut(why, stale=self._used))


class RedisAsyncTransport:
    """Calls of the async world. A client may be used by several loops: each has a line of its own."""

    def __init__(self, place: RedisAddress) -> None:
        self._place = place
        self._trouble = ConnectionTrouble(place.name)
        self._closed = False
        self._reset()
        inherit_nothing(self)

    def _reset(self) -> None:
        self._lines: weakref.WeakKeyDictionary[AbstractEventLoop, RedisChannel] = weakref.WeakKeyDictionary()
        self._dials: weakref.WeakKeyDictionary[AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()

    async def call(self, payload: bytes, seconds: float, *, again: bool) -> Reply:
        """The server's reply. `again`: may be sent twice, if the connection had ended while it lay idle."""
        deadline = time.monotonic() + seconds
        try:
            line = self._lines.get(asyncio.get_running_loop())
            if line is None or not line.is_open:
                line = await self._line(seconds)
            return await line.exchange(payload, seconds)
        except Cut as error:
            if not self._closed:  # else it is no trouble, and nobody connects anew
                self._trouble.gone(error)
            left = deadline - time.monotonic()
            if not (again and error.stale) or left <= 0:
                raise faults.cut(error, self._place.name) from error
        try:
            return await (await self._line(left)).exchange(payload, left)
        except Cut as error:
            raise faults.cut(error, self._place.name) from error

    async def _line(self, seconds: float) -> RedisChannel:
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is not None and line.is_open:
            return line
        self._bury_the_dead()
        async with self._dials.setdefault(loop, asyncio.Lock()):
            line = self._lines.get(loop)
            if line is None or not line.is_open:
                line = self._lines[loop] = await asyncio.ensure_future(self._dial(seconds))  # redis-py asks for a task
            if self._closed:  # meanwhile
                line.close("the store was closed")
            return line

    async def _dial(self, seconds: float) -> RedisChannel:
        connection = self._place.connection(redis.asyncio.connection, seconds)
        try:
            async with asyncio.timeout(seconds):
                await connection.connect()
        except BaseException as error:
            _discard(connection)
            if isinstance(error, redis.RedisError | OSError):
                self._trouble.gone(error)
                raise faults.unreachable(error, self._place.name, seconds) from error
            raise
        self._trouble.back()
        return RedisChannel(self._place.name, connection)

    def drop(self) -> None:
        """Close the line of this loop: the next call connects anew."""
        line = self._lines.pop(asyncio.get_running_loop(), None)
        if line is not None:
            line.close("it leads to a replica")

    async def close(self) -> None:
        """Also lines of other loops, and from outside of any: the blocking face may close what the async one used."""
        self._closed = True
        here = _running()
        for loop, line in tuple(self._lines.items()):
            if loop is here or loop.is_closed():
                line.close("the store was closed")
            else:
                with contextlib.suppress(RuntimeError):  # it was closed in between
                    loop.call_soon_threadsafe(line.close, "the store was closed")
        self._lines.clear()

    def _bury_the_dead(self) -> None:
        """A loop may end without a word to us, as `asyncio.run` does."""
        for loop, line in tuple(self._lines.items()):
            if loop.is_closed():
                line.close("its loop was closed")
                self._lines.pop(loop, None)

    def after_fork_in_child(self) -> None:
        from .connection import _abandoned

        _abandoned.extend(self._lines.values())
        self._reset()


def _discard(connection: Any) -> None:
    """It got stuck half-way: redis-py would leave the socket open."""
    writer, connection._reader, connection._writer = connection._writer, None, None  # noqa: SLF001 (as above)
    if writer is not None:
        writer.transport.abort()


def _running() -> AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _bury(transport: Any) -> None:
    """Close the socket of a transport whose loop will not do it any more. Else Python warns about it at the end."""
    plain = getattr(getattr(transport, "_ssl_protocol", None), "_transport", transport)
    finish = getattr(plain, "_call_connection_lost", None)
    if finish is not None:
        with contextlib.suppress(Exception):  # whatever it is, nobody uses it any more
            finish(None)
