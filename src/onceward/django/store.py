"""The store of `once` in Django: it follows `ONCEWARD["DATABASE"]` and `DATABASES`, call by call.

Which store answers a call:

- In production, a store with connections of its own to the same database. A claim must be committed before its work
  begins, whatever Django's connection is doing, and the heartbeat and async views need connections of their own.
- In tests, and for a database in memory, a store on Django's connection of the calling thread. So the records of a
  `TestCase` are in its transaction and disappear with it, `TransactionTestCase` flushes them, each process of
  `--parallel` uses its own database, and a test that may not use the database cannot write to any. A store with its own
  connections would do none of this, and a test without a test database would write to the development database.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

from asgiref.sync import sync_to_async
from django.db import connections

from onceward.errors import ConfigurationError, StoreNotSetUp, StoreUnavailable
from onceward.protocol.capabilities import Capabilities, Lookup, Migrations, Notifications, Schema, Transactions
from onceward.protocol.ports import Clock, Store
from onceward.protocol.record import CompletedRecord
from onceward.protocol.requests import Answer, Renewal, Verdict
from onceward.protocol.runtime import Runtime
from onceward.runtime.threads import ThreadRuntime, run

from .configuration import configuration, has_run_tests, is_test_environment
from .database_store import database_store, require_supported

OPEN_TIMEOUT = 30.0


class FollowedStore:
    """A store on one database, and whether it has been opened."""

    def __init__(self, store: Store, *, on_django: bool) -> None:
        self.store = store
        self.on_django = on_django
        self.opened = False

    async def open(self, runtime: Runtime) -> Store:
        if not self.opened:
            migrations = self.store.migrations
            found = None if migrations is None else await migrations.schema(runtime, timeout=OPEN_TIMEOUT)
            if found is not None and found.version < found.latest:
                raise StoreNotSetUp(
                    f"{self.store.name} has no Onceward tables, or outdated ones", hint="run `python manage.py migrate`"
                )
            await self.store.open(runtime)
            self.opened = True
        return self.store


class ForwardedCalls:
    """The capabilities of the followed store. Each call is forwarded to the store that is followed at that time."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        async def forward(*arguments: Any, **options: Any) -> Any:
            return await self._call(verb, *arguments, **options)

        return forward


def forwarded_verb(verb: str) -> Callable[..., Any]:
    """Return a method that forwards each call to the store that is followed at that time."""

    async def forward(store: DjangoStore, *arguments: Any, **options: Any) -> Any:
        return await store._call(verb, *arguments, **options)  # noqa: SLF001 (its own method)

    return forward


class DjangoStore(Capabilities):
    """Follows the database of the setting `ONCEWARD`. `clock` replaces the database's clock, for tests."""

    inline = False

    def __init__(self, *, is_clone: bool = False) -> None:
        self._is_clone = is_clone
        self._runtime: Runtime = ThreadRuntime()
        self._forwarded: Any = ForwardedCalls(self._call)
        self._lock = threading.Lock()
        self._followed: dict[tuple[Any, ...], FollowedStore] = {}

    # ── which store ─────────────────────────────────────────────────────────────────────────────────────────────

    def followed(self) -> FollowedStore:
        """Return the store that answers a call of this thread now."""
        if has_run_tests() and not is_test_environment():
            raise StoreUnavailable("the tests of this process have ended, and their database is gone")
        connection = connections[configuration().database]
        place = connection.settings_dict
        on_django = is_test_environment() or _is_in_memory(connection)
        clock = current_clock()
        address = (place["NAME"], place["HOST"], place["PORT"], place["USER"], place["PASSWORD"], id(place["OPTIONS"]))
        key = (connection.alias, on_django, clock, *address)
        found = self._followed.get(key)
        if found is None:
            with self._lock:
                found = self._followed.get(key) or _make(connection, clock, on_django=on_django)
                self._followed[key] = found
        return found

    async def _call(self, verb: str, *arguments: Any, **options: Any) -> Any:
        if not self._runtime.supports_cancellation or not self.followed().on_django:
            store = await self.followed().open(self._runtime)
            return await getattr(store, verb)(*arguments, **options)
        return await sync_to_async(self._call_on_thread, thread_sensitive=True)(verb, arguments, options)

    def _call_on_thread(self, verb: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Call the store on the thread whose connection Django's own async methods use."""

        async def call() -> Any:
            store = await self.followed().open(ThreadRuntime())
            return await getattr(store, verb)(*arguments, **options)

        return run(call())

    # ── opening ──

    @property
    def name(self) -> str:
        try:
            return self.followed().store.name
        except StoreUnavailable:
            return "the test database of Django"

    async def open(self, runtime: Runtime) -> None:
        """Remember the runtime. Each call opens the store that answers it: a transaction of Django needs none."""
        self._runtime = runtime

    async def close(self) -> None:
        followed, self._followed = self._followed, {}
        for one in followed.values():
            if one.opened:
                await one.store.close()

    def clone(self) -> DjangoStore:
        return DjangoStore(is_clone=True)

    # ── the verbs ───────────────────────────────────────────────────────────────────────────────────────────────

    claim = forwarded_verb("claim")
    settle = forwarded_verb("settle")
    read = forwarded_verb("read")
    forget = forwarded_verb("forget")
    scan = forwarded_verb("scan")
    counts = forwarded_verb("counts")
    purge = forwarded_verb("purge")
    audit = forwarded_verb("audit")

    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        if self._is_clone and not self._runtime.supports_cancellation and self.followed().on_django:
            # The heartbeat's thread does not see what the test's transaction holds, and must not block it.
            return [Answer(Verdict.OK, None, 0) for _ in renewals]
        return cast("list[Answer]", await self._call("renew", renewals, timeout=timeout))

    # ── capabilities: those of both PostgreSQL and SQLite ───────────────────────────────────────────────────────

    @property
    def lookup(self) -> Lookup:
        return self._lookup

    def _lookup(self, id: bytes, fingerprint: bytes, /) -> CompletedRecord | None:
        followed = self.followed()
        found = followed.store.lookup if followed.opened else None
        return None if found is None else found(id, fingerprint)

    @property
    def notifications(self) -> Notifications:
        return self

    def watch(self, id: bytes, wake: Callable[[], None]) -> Callable[[], None]:
        notifications = self.followed().store.notifications
        return (lambda: None) if notifications is None else notifications.watch(id, wake)

    @property
    def transactions(self) -> Transactions:
        return self

    def join(self, connection: Any, runtime: Runtime) -> Any:
        """Return the store inside a transaction of Django.

        On SQLite it does not open a connection of its own: the transaction may block that.
        """
        followed = self.followed()
        mine = connections[configuration().database]
        if mine.vendor == "sqlite" and not followed.opened:
            followed = _make(mine, current_clock(), on_django=True)
        store = run(followed.open(ThreadRuntime() if runtime.supports_cancellation else runtime))
        return cast("Transactions", store.transactions).join(connection, runtime)

    @property
    def migrations(self) -> Migrations:
        return self

    async def schema(self, runtime: Runtime, *, timeout: float) -> Schema:
        return await cast("Migrations", self.followed().store.migrations).schema(runtime, timeout=timeout)

    async def migrate(self, runtime: Runtime) -> None:  # noqa: ARG002 (same parameters as in other stores)
        """Raise: Django creates the tables."""
        raise ConfigurationError("Django creates the tables of Onceward", hint="run `python manage.py migrate`")

    @property
    def sorting(self) -> Any:
        return self._forwarded

    @property
    def latest(self) -> Any:
        return self._forwarded

    @property
    def erasure(self) -> Any:
        return self._forwarded

    @property
    def listing(self) -> Any:
        return self._forwarded_if("listing")

    @property
    def commits(self) -> Any:
        return self._forwarded_if("commits")

    @property
    def health(self) -> Any:
        return self._forwarded_if("health")

    @property
    def counters(self) -> Any:
        return self._forwarded_outside_tests()

    @property
    def history(self) -> Any:
        return self._forwarded_outside_tests()

    def _forwarded_if(self, capability: str) -> Any:
        """Return the forwarded capability; None if the followed store does not have it."""
        return None if getattr(self.followed().store, capability) is None else self._forwarded

    def _forwarded_outside_tests(self) -> Any:
        """Return the forwarded capability; None for the background thread in tests, which belongs to no test."""
        return None if self._is_clone and has_run_tests() else self._forwarded


def from_url(url: str) -> DjangoStore:
    """Return the store for `django://default`, for commands. The alias must be that of the setting `ONCEWARD`."""
    alias, expected = url.partition("://")[2], configuration().database
    if alias != expected:
        raise ConfigurationError(
            f"ONCEWARD['DATABASE'] is {expected!r}, not {alias!r}", hint=f"write django://{expected}"
        )
    return DjangoStore()


_clocks: list[Clock] = []


def current_clock() -> Clock | None:
    """Return the clock that a test has set, or None."""
    return _clocks[-1] if _clocks else None


def set_clock(clock: Clock) -> Callable[[], None]:
    """Use this clock instead of the database's. Return a function that ends it."""
    _clocks.append(clock)
    return lambda: _clocks.remove(clock)


def _make(connection: Any, clock: Clock | None, *, on_django: bool) -> FollowedStore:
    require_supported(connection)
    if not on_django:
        return FollowedStore(database_store(connection, clock), on_django=False)
    if connection.vendor == "sqlite":
        from .sqlite_store import DjangoSQLiteStore

        return FollowedStore(DjangoSQLiteStore(connection.alias, clock), on_django=True)
    from .postgres_store import DjangoPostgresStore

    return FollowedStore(DjangoPostgresStore(connection, clock), on_django=True)


def _is_in_memory(connection: Any) -> bool:
    return connection.vendor == "sqlite" and bool(connection.is_in_memory_db())
