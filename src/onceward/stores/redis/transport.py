"""What both kinds of connections share: when a call is sent again, what is logged about an outage, and forks."""

from __future__ import annotations

import itertools
import logging
import time
import weakref
from typing import Any, Protocol

from onceward.errors import StoreUnavailable
from onceward.protocol.fork import call_in_forked_child

from . import errors as faults
from .address import RedisAddress
from .errors import ConnectionLost

Reply = Any
"""bytes, int, None, or a list of replies."""

logger = logging.getLogger("onceward.redis")


class ConnectionLog:
    """Logs once that a connection was lost, and once that it was restored."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_lost = False
        self._was_connected = False

    def lost(self, error: BaseException) -> None:
        if self._was_connected and not self._is_lost:  # if it never connected, only the caller gets the error
            self._is_lost = True
            why = str(error) or type(error).__name__
            logger.warning("%s: the connection is lost (%s); the next calls reconnect", self._name, why)

    def restored(self) -> None:
        self._was_connected = True
        if self._is_lost:
            self._is_lost = False
            logger.warning("%s: connected again", self._name)


class RedisTransport:
    """Sends calls to the server. The subclasses do so for threads and for event loops.

    Each call uses a connection of its own until its reply has arrived. If the reply is not read, because of a timeout,
    a cancellation, a signal handler or any other error, the connection is closed: the next call would get that reply.
    """

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._log = ConnectionLog(address.name)
        register_for_fork(self)

    async def call(self, payload: bytes, timeout: float, *, retryable: bool) -> Reply:
        """Send an encoded command and return the reply. An error reply is raised as one of `ERROR_REPLIES`.

        `retryable`: send it again if an idle connection was closed.
        """
        if timeout <= 0:
            raise StoreUnavailable(f"{self._address.name}: the call's timeout expired before it could be sent")
        deadline = time.monotonic() + timeout
        try:
            return await self._exchange(payload, timeout)
        except ConnectionLost as error:
            self._log.lost(error)
            left = deadline - time.monotonic()
            if not (retryable and error.stale) or left <= 0:
                raise faults.connection_lost_error(error, self._address.name) from error
        await self.drop()  # the other idle connections are probably closed, too
        try:
            return await self._exchange(payload, left)
        except ConnectionLost as error:
            raise faults.connection_lost_error(error, self._address.name) from error

    async def _exchange(self, payload: bytes, timeout: float) -> Reply:
        """Send the command on an idle or a new connection."""
        raise NotImplementedError

    async def drop(self) -> None:
        """Close idle connections, so that the next calls reconnect."""
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    def after_fork_in_child(self) -> None:
        """Do not use the parent's connections: two processes on one would receive each other's replies."""
        raise NotImplementedError


class ClosedTransport(RedisTransport):
    """The transport of a store that is not open."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def call(self, payload: bytes, timeout: float, *, retryable: bool) -> Reply:  # noqa: ARG002
        raise StoreUnavailable(
            f"{self._name} is not open", hint="open the store before the first call and close it after the last"
        )

    async def drop(self) -> None:
        pass

    async def close(self) -> None:
        pass


class ForkHandler(Protocol):
    """Has connections that a forked child must not use."""

    def after_fork_in_child(self) -> None: ...


_fork_handlers: weakref.WeakValueDictionary[int, ForkHandler] = weakref.WeakValueDictionary()
_numbers = itertools.count()
_abandoned: list[object] = []


def register_for_fork(handler: ForkHandler) -> None:
    """Call `handler.after_fork_in_child()` in every forked child, for as long as the handler lives."""
    _fork_handlers[next(_numbers)] = handler


def abandon(connections: object) -> None:
    """Keep the parent's connections alive in a forked child, so that their finalizers send nothing to the server."""
    _abandoned.append(connections)


def _after_fork_in_child() -> None:
    for handler in tuple(_fork_handlers.values()):
        handler.after_fork_in_child()


call_in_forked_child(_after_fork_in_child)
