"""Clients for tests: one test body runs against the sync and the async client, on each store.

`client` wraps an `Once` or an `AsyncOnce`; a test calls it as plain blocking code. The async client runs on its own
event loop in another thread: each call becomes a task there. A handler (a plain function) runs in a worker thread, so
that it may block. Context variables are copied, so nesting works as in real code.

The time is the real time plus whatever `client.clock` was advanced by, for the store, the waits and the heartbeat
alike. No lease expires by accident, and `client.clock.advance("10m")` means ten minutes without any call.
`client.renew_leases()` is one pass of the heartbeat.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal, overload

import pytest

from onceward import AsyncOnce, Once, StoreUnavailable
from onceward.observe import AuditEntry, Event
from onceward.protocol.ports import Store
from onceward.runtime.heartbeat import Heartbeat
from onceward.runtime.threads import run
from onceward.stores import MemoryStore
from onceward.stores.postgres import PostgresStore
from onceward.stores.redis import RedisStore
from onceward.stores.sqlite import SQLiteStore
from onceward.testing.clock import FakeClock
from tests.heartbeats import IdleHeartbeat, use_heartbeat
from tests.moved_time import TOO_LONG, LoopThread, MovedLoop, MovedThreads, RealClock, in_thread
from tests.servers.postgres import URL, schema_of
from tests.servers.redis import shared

__all__ = ["TOO_LONG", "AsyncClient", "Backend", "Mode", "Pause", "RealClock", "SyncClient", "make_backend"]

Mode = Literal["blocking", "async"]

LEASE = "600s"
"""The lease of test clients unless a test chooses another: that of mission A."""


class Backend:
    """Where the records are kept. Each `open` returns a separate store on the same data, as another process would."""

    def __init__(self, kind: str, folder: Path, clock: FakeClock) -> None:
        self.kind = kind
        self.path = folder / "once.db"
        self.clock = clock
        self._memory = MemoryStore(clock=clock)

    def open(self) -> Store:
        if self.kind == "postgres":
            schema = schema_of(self.path.parent)
            return PostgresStore(os.environ[URL], schema=schema, migrate=True, clock=self.clock)
        if self.kind == "valkey":
            return RedisStore(shared().url(), prefix=f"clients/{self.path.parent.name}", clock=self.clock)
        if self.kind == "firestore":
            from tests.firestore_backends import documents  # here, because its driver takes a second to import

            return documents(self.path.parent, clock=self.clock)
        return self._memory if self.kind == "memory" else SQLiteStore(self.path, clock=self.clock)


class Pause:
    """A handler stops `here` until the test lets it `go`."""

    def __init__(self) -> None:
        self._arrived = threading.Event()
        self._left = threading.Event()

    def here(self) -> None:
        self._arrived.set()
        assert self._left.wait(TOO_LONG), "the test never let the handler continue"

    def reached(self) -> None:
        assert self._arrived.wait(TOO_LONG), "the handler never arrived"

    def go(self) -> None:
        self._left.set()


class BlockingClaim:
    """A claim of the sync or async client, called as blocking code."""

    def __init__(self, client: SyncClient, claim: Any) -> None:
        self._client = client
        self.claim = claim

    def complete(self, value: Any = None) -> None:
        self._client.wait(self.claim.complete(value))

    def complete_in(self, connection: Any, value: Any = None) -> None:
        self._client.wait(self.claim.complete_in(connection, value))

    def annotate(self, **note: str) -> None:
        self._client.wait(self.claim.annotate(**note))

    def __getattr__(self, name: str) -> Any:  # token, attempt, key, note, state, check, derived_key: never awaited
        return getattr(self.claim, name)


class GuardedFunction:
    """A decorated function, sync or async, called as blocking code."""

    def __init__(self, client: SyncClient, fn: Any) -> None:
        self._client = client
        self.fn = fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._client.wait(self.fn(*args, **kwargs))

    def outcome(self, *args: Any, **kwargs: Any) -> Any:
        return self._client.wait(self.fn.outcome(*args, **kwargs))

    def read(self, *args: Any, **kwargs: Any) -> Any:
        return self._client.wait(self.fn.read(*args, **kwargs))

    def forget(self, *args: Any, **kwargs: Any) -> bool:
        forgotten: bool = self._client.wait(self.fn.forget(*args, **kwargs))
        return forgotten

    def __getattr__(self, name: str) -> Any:  # key, policy, operation: never awaited
        return getattr(self.fn, name)


class SyncClient:
    """The sync client, and what it shares with the async one. `once` is the client under test."""

    mode: Mode = "blocking"

    def __init__(self, backend: Backend, **defaults: Any) -> None:
        self.backend = backend
        self.clock = backend.clock
        defaults = {"lease": LEASE, **defaults}
        self.once: Any = self._once_client(backend.open(), defaults)
        kind = Heartbeat if isinstance(self.clock, RealClock) else IdleHeartbeat
        use_heartbeat(self.once, kind, self.once.engine.runtime.monotonic)
        self.heartbeat = self.once.heartbeat
        self.events: list[Event] = []
        self.once.subscribe(self.events.append)
        self._others: list[SyncClient] = []
        self._blocks: list[Any] = []
        self._closed = False

    # ── what differs ──

    def _once_client(self, store: Store, defaults: dict[str, Any]) -> Any:
        once = Once(store, **defaults)
        once.engine.runtime = MovedThreads(self.clock)
        return once

    def wait(self, call: Any) -> Any:
        """Return the result of a call to the client."""
        return call

    def work(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return this plain function in the form that the client expects."""
        return fn

    def enter(self, block: Any, context: contextvars.Context) -> Any:
        """Enter a `with` block of the client, in this context."""
        return context.run(block.__enter__)

    def leave(self, block: Any, context: contextvars.Context, error: BaseException | None) -> None:
        """Leave it, with this error if its body raised one."""
        context.run(block.__exit__, type(error) if error else None, error, None)

    def drive(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Run one call of the store itself."""
        return run(call)

    def after_fork(self) -> None:
        """Call this first in a forked child: threads do not survive a fork."""

    def _stop(self) -> None:
        """Clean up after the client was closed."""

    # ── the verbs ──

    @overload
    def __call__(self, fn: Callable[..., Any], /) -> GuardedFunction: ...
    @overload
    def __call__(self, fn: None = None, /, **settings: Any) -> Callable[[Callable[..., Any]], GuardedFunction]: ...
    def __call__(self, fn: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
        """Decorate a plain function with `@client` or `@client(key=…)`, like `@once`."""
        if fn is None:
            return lambda fn: GuardedFunction(self, self.once(**settings)(self.work(fn)))
        return GuardedFunction(self, self.once(self.work(fn)))

    def run(self, key: Any, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.wait(self.once.run(key, self.work(fn), *args, **kwargs))

    def outcome(self, key: Any, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.wait(self.once.outcome(key, self.work(fn), *args, **kwargs))

    def map(self, fn: Any, items: Any, **settings: Any) -> list[Any]:
        work = fn.fn if isinstance(fn, GuardedFunction) else self.work(fn)
        outcomes: list[Any] = self.wait(self.once.map(work, items, **settings))
        return outcomes

    def read(self, key: Any, **details: Any) -> Any:
        return self.wait(self.once.read(key, **details))

    def forget(self, key: Any, **details: Any) -> bool:
        forgotten: bool = self.wait(self.once.forget(key, **details))
        return forgotten

    def resolve(self, key: Any, finding: Any, **details: Any) -> None:
        self.wait(self.once.resolve(key, finding, **details))

    def purge(self, limit: int = 10_000, **details: Any) -> int:
        purged: int = self.wait(self.once.purge(limit, **details))
        return purged

    def audit(self, *key: Any, **details: Any) -> list[AuditEntry]:
        entries: list[AuditEntry] = self.wait(self.once.audit(*key, **details))
        return entries

    @contextlib.contextmanager
    def claim(self, key: Any, **settings: Any) -> Iterator[BlockingClaim]:
        block = self.once.claim(key, **settings)
        context = contextvars.copy_context()
        claim = self.enter(block, context)
        with _variables_of(context):
            try:
                yield BlockingClaim(self, claim)
            except BaseException as error:
                self.leave(block, context, error)
                raise
            self.leave(block, context, None)

    def silent_owner(self, key: Any, **settings: Any) -> BlockingClaim:
        """Claim as an owner elsewhere that stops responding, as after a crash. It may come back late."""
        block = self.once.claim(key, **settings)
        self._blocks.append(block)  # a block without references abandons its claim
        return BlockingClaim(self, self.enter(block, contextvars.Context()))

    # ── set up the scene ──

    def another(self, **defaults: Any) -> SyncClient:
        """Return another worker on the same data, with its own client, heartbeat and connection."""
        other = type(self)(self.backend, **defaults)
        self._others.append(other)
        return other

    def renew_leases(self) -> None:
        """Run one pass of the heartbeat: it renews every lease that is due."""
        self.heartbeat.tick()

    def leases(self) -> int:
        """Return how many leases the heartbeat is renewing."""
        return len(self.heartbeat.held())

    def start(self, call: Callable[..., Any], *args: Any) -> Future[Any]:
        """Call it in another thread."""
        return in_thread(call, *args)

    def together(self, times: int, call: Callable[[], Any]) -> list[Any]:
        """Return the results of that many concurrent calls; exceptions count as results."""
        barrier = threading.Barrier(times)

        def one() -> Any:
            barrier.wait(TOO_LONG)
            try:
                return call()
            except Exception as error:
                return error

        return [each.result(TOO_LONG) for each in [self.start(one) for _ in range(times)]]

    @contextlib.contextmanager
    def store_trouble(self, verb: str, *, times: int = 1_000_000, applied: bool = False) -> Iterator[list[str]]:
        """Make the store fail that many calls of a verb, including the heartbeat's.

        `applied`: the call takes effect, but its reply is lost.
        """
        kind: Any = type(self.once.store)
        original = getattr(kind, verb)
        failed: list[str] = []

        async def failing(store: Any, *args: Any, **kwargs: Any) -> Any:
            if len(failed) >= times:
                return await original(store, *args, **kwargs)
            failed.append(verb)
            if applied:
                await original(store, *args, **kwargs)
            raise StoreUnavailable("the store fails, as the test wants it")

        setattr(kind, verb, failing)
        try:
            yield failed
        finally:
            setattr(kind, verb, original)

    @contextlib.contextmanager
    def calls_counted(self, verb: str) -> Iterator[list[str]]:
        """Yield a list that grows with each call of a verb of the store."""
        kind: Any = type(self.once.store)
        original = getattr(kind, verb)
        begun: list[str] = []

        async def counted(store: Any, *args: Any, **kwargs: Any) -> Any:
            begun.append(verb)
            return await original(store, *args, **kwargs)

        setattr(kind, verb, counted)
        try:
            yield begun
        finally:
            setattr(kind, verb, original)

    def events_named(self, name: str) -> list[Event]:
        """Return the events of that name so far."""
        return [event for event in self.events if event.name == name]

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for other in self._others:
                other.close()
            self.wait(self.once.close(timeout=0))
            self._stop()


class AsyncClient(SyncClient):
    """The async client."""

    mode = "async"

    def _once_client(self, store: Store, defaults: dict[str, Any]) -> Any:
        self._loop = LoopThread()
        once = AsyncOnce(store, **defaults)
        once.engine.runtime = MovedLoop(self.clock)
        return once

    def wait(self, call: Any) -> Any:
        return self._loop.wait(call)

    def work(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            def call() -> tuple[Any, BaseException | None]:
                try:
                    return fn(*args, **kwargs), None
                except BaseException as error:  # as a value: a future refuses StopIteration, and would never be done
                    return None, error

            value, error = await asyncio.wrap_future(in_thread(contextvars.copy_context().run, call))
            if error is not None:
                raise error
            return value

        return awaited

    def enter(self, block: Any, context: contextvars.Context) -> Any:
        return self._loop.wait(block.__aenter__(), context)

    def leave(self, block: Any, context: contextvars.Context, error: BaseException | None) -> None:
        self._loop.wait(block.__aexit__(type(error) if error else None, error, None), context)

    def drive(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.wait(call)

    def after_fork(self) -> None:
        self._loop = LoopThread()

    def _stop(self) -> None:
        self._loop.close()


@contextlib.contextmanager
def _variables_of(context: contextvars.Context) -> Iterator[None]:
    """Make the variables of that context visible here, as if the code in between ran there."""
    changed = [(variable, variable.set(value)) for variable, value in context.items()]
    try:
        yield
    finally:
        for variable, token in changed:
            variable.reset(token)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["memory", "sqlite", *os.environ.get("ONCEWARD_TEST_BACKENDS", "").split()])
def backend(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Backend:
    """Each store; ONCEWARD_TEST_BACKENDS="postgres valkey firestore" adds servers (the soak does)."""
    return make_backend(request, tmp_path, clock)


def make_backend(request: pytest.FixtureRequest, folder: Path, clock: FakeClock) -> Backend:
    """Make the backend for a module's own fixture, which chooses the stores."""
    if request.param == "postgres":
        request.getfixturevalue("postgres")
    return Backend(request.param, folder, clock)


@pytest.fixture(params=["blocking", "async"])
def mode(request: pytest.FixtureRequest) -> Mode:
    chosen: Mode = request.param
    return chosen


@pytest.fixture
def client(backend: Backend, mode: Mode) -> Iterator[SyncClient]:
    """A sync and an async client on each store."""
    client = SyncClient(backend) if mode == "blocking" else AsyncClient(backend)
    yield client
    client.close()


@pytest.fixture
def sqlite_client(tmp_path: Path, clock: FakeClock, mode: Mode) -> Iterator[SyncClient]:
    """A sync and an async client on a SQLite file, for tests that the memory store cannot run."""
    backend = Backend("sqlite", tmp_path, clock)
    client = SyncClient(backend) if mode == "blocking" else AsyncClient(backend)
    yield client
    client.close()
