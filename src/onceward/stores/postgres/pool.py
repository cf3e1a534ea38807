"""A few connections, lent to one call at a time. Lost ones are replaced quietly; a fork inherits none."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import deque
from contextlib import suppress

from onceward.errors import StoreNotSetUp, StoreUnavailable
from onceward.protocol.runtime import Gate, Runtime

from .connection import OK, PostgresConnection
from .errors import PostgresRefused, at_the_door, explain

logger = logging.getLogger("onceward.postgres")

QUIET = (
    "SET jit = off",  # a plan of ours is never worth compiling
    "SET plan_cache_mode = force_generic_plan",  # to plan costs ten times what the statement itself does
    "SET enable_seqscan = off",  # a plan that was made for an empty table must not outlive its emptiness
)
NOTICES_CLOSING = "SET client_connection_check_interval = 1000"
"""ms: a statement whose caller has given up ends soon. Not every platform can do it."""

SINCE_14 = 140_000

CONTENT = 10.0
"""Seconds for which the connections that there are have to do, after the server has refused one more."""


class Slot:
    """One of the connections that there may be. It is counted for as long as it lives, whoever has it."""

    __slots__ = ("__weakref__",)


class Pool:
    """At most `size` connections. Whose borrower is gone is not counted: an interrupt may strike anywhere."""

    def __init__(self, conninfo: str, name: str, size: int, *, prepares: bool | None) -> None:
        self._conninfo = conninfo.encode()
        self._name = name
        self._size = size
        self.prepares = prepares
        """None: until it is known whether a pooler is in between."""
        self._closed = True
        self._told = False
        self._met = False  # the server, ever: what it refuses later is an outage
        self.forget()
        _pools.add(self)

    def forget(self) -> None:
        """In the child of a fork: the connections belong to the parent, and libpq is not to say goodbye on them."""
        self._idle: list[PostgresConnection] = []
        self._slots: weakref.WeakSet[Slot] = weakref.WeakSet()
        self._waiting: deque[Gate] = deque()
        self._refused_until = 0.0
        self._lock = threading.RLock()  # a signal handler may come back in; what it finds is never half done

    async def lend(self, runtime: Runtime, deadline: float) -> PostgresConnection:
        while True:
            slot = gate = None
            with self._lock:
                if self._closed:
                    raise StoreUnavailable(f"{self._name} is not open", hint="open the store first, and close it last")
                wire = self._idle.pop() if self._idle else None
                if wire is None and self._may_grow():
                    slot = Slot()
                    self._slots.add(slot)
                elif wire is None:
                    gate = runtime.gate()
                    self._waiting.append(gate)
            if gate is not None:
                await self._queue(gate, deadline)
                continue
            if wire is None:
                try:
                    wire = await self._connect(runtime, deadline)
                except BaseException as error:
                    self._free(slot)
                    if self._slots and isinstance(error, StoreUnavailable):  # the server may have none left for us
                        self._refused_until = time.monotonic() + CONTENT
                        continue
                    raise
                wire.slot = slot
            elif not wire.is_sound():
                self._lost(wire)
                continue
            wire.runtime = runtime
            return wire

    def _may_grow(self) -> bool:
        """One more connection, unless the server has just refused that: then those that there are have to do."""
        if not self._slots:
            return True
        return len(self._slots) < self._size and time.monotonic() >= self._refused_until

    async def _queue(self, gate: Gate, deadline: float) -> None:
        left = deadline - time.monotonic()
        try:
            if left > 0:
                await gate.wait(left)
        finally:
            with suppress(ValueError):
                self._waiting.remove(gate)
        if time.monotonic() >= deadline:
            raise StoreUnavailable(f"{self._name}: other calls of this process kept its connections busy for too long")

    def give_back(self, wire: PostgresConnection) -> None:
        """To be used again, unless it was left in the middle of something."""
        keep = wire.is_idle()
        with self._lock:
            keep = keep and not self._closed
            if keep:
                self._idle.append(wire)
        if not keep:
            if wire.pgconn.status != OK:
                self._tell(StoreUnavailable(wire.pgconn.get_error_message().strip()))
            wire.close()
            self._free(wire.slot)
        elif self._waiting:
            self._call_next()

    def _free(self, slot: object) -> None:
        """A connection less."""
        with self._lock:
            if isinstance(slot, Slot):
                self._slots.discard(slot)
        self._call_next()

    def _call_next(self) -> None:
        """Somebody else may have a connection now."""
        with self._lock:
            next_one = self._waiting.popleft() if self._waiting else None
        if next_one is not None:
            next_one.open()

    def open(self) -> None:
        self._closed = False

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for wire in idle:
            wire.close()

    async def _connect(self, runtime: Runtime, deadline: float) -> PostgresConnection:
        try:
            wire = await PostgresConnection.connect(self._conninfo, runtime, self._name, deadline)
        except StoreUnavailable as error:
            meant = error if self._met else at_the_door(error, self._name)
            if meant is error:
                self._tell(error)
                raise
            raise meant from error
        self._met = True
        try:
            await self._greet(wire, deadline)
        except PostgresRefused as error:
            wire.close()
            raise explain(error, self._name) from error
        except BaseException:
            wire.close()
            raise
        if self._told:
            self._told = False
            logger.info("%s: connected again", self._name)
        return wire

    async def _greet(self, wire: PostgresConnection, deadline: float) -> None:
        """A pooler makes up the process id that it tells; then nothing may be left behind on the connection."""
        question = "SELECT pg_backend_pid(), current_setting('server_encoding')"
        [(pid, encoding)] = await wire.ask(question, deadline)
        if encoding != "UTF8":
            raise StoreNotSetUp(
                f"{self._name}: the database has the encoding {encoding}", hint="Onceward needs one with UTF8"
            )
        direct = pid == wire.pgconn.backend_pid
        wire.prepares = direct if self.prepares is None else self.prepares
        if direct:
            await wire.command("; ".join(QUIET), deadline)
            if wire.pgconn.server_version >= SINCE_14:
                with suppress(PostgresRefused):
                    await wire.command(NOTICES_CLOSING, deadline)

    def _lost(self, wire: PostgresConnection) -> None:
        self._tell(StoreUnavailable(wire.pgconn.get_error_message().strip()))
        wire.close()
        self._free(wire.slot)

    def _tell(self, error: Exception) -> None:
        """Once an outage."""
        if not self._told:
            self._told = True
            what = "connection lost, will connect again" if self._met else "no connection yet, will try again"
            logger.warning("%s: %s: %s", self._name, what, error)


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _forget_all() -> None:
    for pool in tuple(_pools):
        pool.forget()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget_all)
