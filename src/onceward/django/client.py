"""`once` and `aonce`: the clients of a Django project.

They read the setting `ONCEWARD` on first use, not on import: settings modules and apps may import them. If a test
overrides the setting, the clients follow it, with all functions, schedules, sagas and states that they have declared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

from django.core.signals import setting_changed

from onceward.client.aio import AsyncOnce
from onceward.client.base import BaseClient
from onceward.client.declarations import DeclaringEngine
from onceward.client.declared_functions import DeclaredFunctions
from onceward.client.sync import Once
from onceward.errors import ConfigurationError

from .configuration import SETTING, configuration, is_test_environment
from .declared import DeclaredObjects, followed, followed_decorator, followed_operation
from .open_transactions import DjangoTransactions, open_transaction
from .store import DjangoStore

if TYPE_CHECKING:
    from onceward.operations.operation import Operation
    from onceward.protocol.ports import Store

    from .atomic import Atomic, DjangoWithin


class DjangoEngine(DeclaringEngine):
    """An engine that opens its store for the first time outside of transactions only."""

    async def ready(self) -> None:
        if not self.is_ready() and not self.runtime.supports_cancellation and open_transaction() is not None:
            await self.store.open(self.runtime)  # on SQLite, the transaction may block everything else
        else:
            await super().ready()


class LazyClient(BaseClient):
    """A client that is configured on first use: until then, it has no attributes."""

    _engine_type = DjangoEngine
    _is_copy = False

    if not TYPE_CHECKING:  # type checkers know the attributes; here only a missing one gets this far

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__") or "engine" in self.__dict__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self.configure()
            return getattr(self, name)

    def __init__(self) -> None:
        """Read nothing yet."""

    def configure(self) -> None:
        """Read the setting, if that has not happened yet."""
        if "engine" not in self.__dict__:
            found = configuration()
            self._declared = DeclaredObjects()
            super().__init__(cast("Store", DjangoStore()), app=found.app, **found.options)
            if not self._is_async:  # Django has no async transactions
                self.engine.open_transactions = DjangoTransactions()
                self.add_transaction_finder(open_transaction)
            setting_changed.connect(self._follow_setting, weak=True)

    def using(self, *, tenant: str | None = None, **settings: Any) -> Self:
        self.configure()
        other = super().using(tenant=tenant, **settings)

        def follow(known: Self) -> None:
            fresh = super(LazyClient, self).using(tenant=tenant, **settings)
            known.__dict__.update({name: fresh.__dict__[name] for name in FOLLOWED_ATTRIBUTES})
            known._forget_caches()

        self._declared.add(other, follow)
        return other

    def declare(self, fn: Callable[..., Any], settings: Mapping[str, Any], **options: Any) -> Operation:
        operation = super().declare(fn, settings, **options)

        self._follow_operation(operation, lambda client: client.compile_operation(fn, settings, warned=True, **options))
        return operation

    def _compare_later(self, operation: Operation) -> None:
        """Compare the operation, unless a test overrides the setting: an override does not count as a deployment."""
        if not self._is_copy:
            super()._compare_later(operation)

    def _follow_operation(self, operation: Operation, declare: Callable[[Any], Operation]) -> None:
        """Let the operation follow the setting: it becomes what `declare(client)` returns then."""

        def follow(known: Operation) -> None:
            known.__dict__.update(declare(self._without_declarations()).__dict__)
            if known.policy.store_input:
                known.keep_input()
            self.declared_functions.add(known)

        self._declared.add(operation, follow)

    def _declared_object(self, declare: Callable[[Any], Any]) -> Any:
        """Return what `declare(client)` returns. It follows the setting."""
        self.configure()
        declared = declare(self)

        def follow(known: Any) -> None:
            copy = self._without_declarations()
            built = declare(copy).__dict__
            known.__dict__.update({name: self if value is copy else value for name, value in built.items()})

        self._declared.add(declared, follow)
        return declared

    def _without_declarations(self) -> Self:
        """Return a copy of this client on the same engine, in which every name can be declared again."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, schedules={}, sagas={}, recoverable=[], _names={})
        copy.declared_functions = DeclaredFunctions()
        copy._is_copy = True
        return copy

    def _forget_caches(self) -> None:
        self._reset_operation_caches()
        self._scopes = {}

    def _follow_setting(self, *, setting: str, **_: object) -> None:
        """Apply an overridden setting: to this client, and to everything that it has declared."""
        if setting != SETTING:
            return
        found = configuration()
        fresh = BaseClient.__new__(_SettingsOnly)
        BaseClient.__init__(fresh, self.engine.store, app=found.app, **found.options)
        for name in FOLLOWED_ATTRIBUTES:
            self.__dict__[name] = fresh.__dict__[name]
        self._set_first_mode(found.options.get("mode", "enforce"))
        self._forget_caches()
        self._declared.follow()
        sagas = list(self.sagas.values())
        self.sagas.clear()
        self.sagas.update({one.scope.text: one for one in sagas})

    def __reduce__(self) -> Any:
        """Pickle by name: the other process has its own settings."""
        return (_client_by_name, ("aonce" if self._is_async else "once",))


FOLLOWED_ATTRIBUTES = ("_app", "_tenant", "_cipher", "_accept_plain", "fingerprint_key", "policy", "_defaults")
"""What `override_settings(ONCEWARD=…)` changes, besides the database. The table of operations does not change."""


class _SettingsOnly(BaseClient):
    """Reads settings, and never talks to the store."""

    def _connect(self, store: Any) -> None:
        """Do nothing."""

    def _set_first_mode(self, mode: Any) -> None:
        """Do nothing."""


class DjangoOnce(LazyClient, Once):
    """The sync client of a Django project. Use `from onceward.django import once`."""

    state = followed(Once.state)
    saga = followed(Once.saga)
    schedule = followed_decorator(Once.schedule)
    _decorate_as = followed_operation(Once._decorate_as)  # noqa: SLF001 (of the base class)

    def close(self, timeout: float = 10.0) -> None:
        """Stop claiming, wait up to `timeout` seconds for running work, and close the connections.

        In tests it does nothing: the client stays usable for the next test.
        """
        if not is_test_environment():
            super().close(timeout)

    @property
    def aio(self) -> AsyncDjangoOnce:
        """The async client on the same database."""
        self.configure()
        client = object.__new__(AsyncDjangoOnce)
        client.__dict__.update(super().aio.__dict__)

        def follow(known: AsyncDjangoOnce) -> None:
            known.__dict__.update({name: self.__dict__[name] for name in FOLLOWED_ATTRIBUTES})
            known._forget_caches()  # noqa: SLF001 (of the same class)

        self._declared.add(client, follow)
        return client

    def atomic(self, *, durable: bool = False) -> Atomic:
        """Return a block that opens `transaction.atomic()`: `with once.atomic() as tx: tx.run(key, fn)`.

        The rows that `fn` writes and the record of its key are committed together. If the block is inside another
        transaction, it is a savepoint of it. `durable=True` refuses that, as in Django.
        """
        from .atomic import Atomic

        return Atomic(self, durable=durable)

    def within(self, connection: Any) -> DjangoWithin:
        """Return a block in a transaction that you have opened: `with once.within(connection) as tx: tx.run(key, fn)`.

        `connection` is that of Django, such as `django.db.connection`.
        """
        from .atomic import DjangoWithin

        return DjangoWithin(self, connection)


class AsyncDjangoOnce(LazyClient, AsyncOnce):
    """The async client of a Django project. Use `from onceward.django import aonce`."""

    state = followed(AsyncOnce.state)
    saga = followed(AsyncOnce.saga)
    schedule = followed_decorator(AsyncOnce.schedule)
    _decorate_as = followed_operation(AsyncOnce._decorate_as)  # noqa: SLF001 (of the base class)

    async def close(self, timeout: float = 10.0) -> None:
        """Stop claiming, wait up to `timeout` seconds for running work, and close the connections.

        In tests it does nothing: the client stays usable for the next test.
        """
        if not is_test_environment():
            await super().close(timeout)

    def atomic(self) -> NoReturn:
        """Raise: Django has no async transactions."""
        raise ConfigurationError(
            "aonce.atomic() is not possible: Django has no async transactions",
            hint="write a sync function that uses once.atomic(), and call it with sync_to_async",
        )

    def within(self, connection: Any) -> NoReturn:  # noqa: ARG002 (same parameters as for other clients)
        """Raise `ConfigurationError`, whatever the `connection`: Django has no async transactions."""
        raise ConfigurationError(
            "aonce.within() is not possible: Django has no async transactions",
            hint="write a sync function that uses once.within(connection), and call it with sync_to_async",
        )


once = DjangoOnce()
"""The sync client."""

aonce = AsyncDjangoOnce()
"""The async client."""


def _client_by_name(name: str) -> BaseClient:
    return aonce if name == "aonce" else once
