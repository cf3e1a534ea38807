"""Give a client another store for the duration of a test."""

from __future__ import annotations

from typing import Any

from onceward.client.base import BaseClient
from onceward.client.declarations import DeclaredOperations, DeclaringEngine
from onceward.client.sync import Once
from onceward.errors import ConfigurationError
from onceward.protocol.ports import Clock, Store
from onceward.runtime.heartbeat import Heartbeat
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.memory import MemoryStore
from onceward.stores.registry import open_store


class override:  # noqa: N801 (reads as a word in `with override(once):`)
    """Let a client use another store: `with override(once, store=MemoryStore()) as store:`, also `async with`.

    `store` is a store or a URL, by default a new MemoryStore. `clock` is the clock of that MemoryStore. Functions that
    `once` has already decorated use the other store too, and so do `once.using(…)` and `once.aio`. Afterwards, the
    client has its own store again, even if it was stopped or closed meanwhile. Do not override while calls are running.
    """

    def __init__(self, once: BaseClient, *, store: Store | str | None = None, clock: Clock | None = None) -> None:
        if store is not None and clock is not None:
            raise ConfigurationError(
                "override() cannot set the clock of a store that you pass",
                hint="pass only clock=, or create the store with it: MemoryStore(clock=clock)",
            )
        self._once = once
        opened = open_store(store) if isinstance(store, str) else store
        self._store: Store = MemoryStore(clock=clock) if opened is None else opened
        self._is_own = store is None or isinstance(store, str)
        self._saved: list[tuple[DeclaringEngine, dict[str, Any]]] = []
        self._heartbeats: tuple[Heartbeat, Heartbeat] | None = None

    def __enter__(self) -> Store:
        if self._heartbeats is not None:
            raise ConfigurationError("this override is already active", hint="call override(once) for each `with`")
        once, heartbeat = self._once, Heartbeat(self._store, self._once.engine.bus)
        self._heartbeats = once.heartbeat, heartbeat
        once.heartbeat = heartbeat
        for engine in _engines(once):
            self._saved.append((engine, dict(vars(engine))))
            engine.stopping = engine.closed = False
            engine.declared = DeclaredOperations()
            engine.connect(self._store if engine is once.engine else self._store.clone(), heartbeat)
        return self._store

    def __exit__(self, *_: object) -> None:
        if self._heartbeats is None:
            raise ConfigurationError("this override is not active", hint="with override(once) as store: …")
        if self._once.heartbeat is not self._heartbeats[1]:
            raise ConfigurationError(
                "a later override of this client is still active",
                hint="end overrides in reverse order: nest the `with`",
            )
        (own, heartbeat), self._heartbeats = self._heartbeats, None
        heartbeat.close()
        while self._saved:
            engine, attributes = self._saved.pop()
            if engine.opened and (self._is_own or engine.store is not self._store):
                _close(engine)
            vars(engine).clear()
            vars(engine).update(attributes)
        self._once.heartbeat = own

    async def __aenter__(self) -> Store:
        return self.__enter__()

    async def __aexit__(self, *error: object) -> None:
        self.__exit__(*error)


def _close(engine: DeclaringEngine) -> None:
    """Close the engine's store without an event loop: the loop of an async client may have ended."""
    if engine.runtime.supports_cancellation:
        run(engine.store.open(ThreadRuntime()))
    run(engine.store.close())


def _engines(once: BaseClient) -> list[DeclaringEngine]:
    """Return the engines of a client: of `Once`, also that of `once.aio`, which would otherwise be created later."""
    return [once.engine, once.aio.engine] if isinstance(once, Once) else [once.engine]
