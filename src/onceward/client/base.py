"""What both faces share: configuration, and making jobs. No I/O happens here."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import warnings
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

from onceward.engine.engine import Engine
from onceward.engine.events import Listener
from onceward.engine.job import NO_NOTE, Job
from onceward.errors import ConfigurationError, OncewardWarning
from onceward.keys.fingerprint import fingerprint, parts
from onceward.keys.key import Key, Scope, make_key
from onceward.operations.operation import NO_MARKS, KeySource, Operation, codec_for, label_of, name_of
from onceward.protocol.capabilities import KeepsCounters
from onceward.protocol.note import checked_note
from onceward.protocol.policy import Defaults, Policy, Settings
from onceward.protocol.ports import Store
from onceward.protocol.runtime import Runtime
from onceward.results.cipher import Cipher
from onceward.results.codec import Codec
from onceward.results.result_type import ResultType
from onceward.runtime.heartbeat import Heartbeat
from onceward.runtime.owner import THIS_PROCESS
from onceward.stores.registry import open_store, store_url

if TYPE_CHECKING:
    from onceward.engine.events import Bus
    from onceward.operations.table import Operations, OperationsSource
    from onceward.runtime.counters import Counters

FUNCTION = "function()"
"""Under this name, which no parameter can have, the fingerprint of `run` holds the function."""

COMMON = "shared"
"""The operation of keys that are given without a function: as with lock names, the same key is the same work."""

MOST_SCOPES = 1_000
"""Names of operations may come from outside: what is kept for speed must not grow with them."""

OF_FUNCTIONS: dict[tuple[str, str | None], str] = {
    ("on_store_down", "run"): "without a store it raises StoreUnavailable instead of entering",
    ("on_missing_key", "run"): "an empty key always raises MissingKey",
    ("on_done", "replay"): "what was done before raises AlreadyDone, with the result in `.value`",
    ("on_done", "skip"): "what was done before raises AlreadyDone, which you may suppress",
    ("on_running", "skip"): "work that runs elsewhere raises AlreadyRunning, which you may suppress",
    ("fingerprint", None): "what is compared is the payload= that you give",
    ("store_input", None): "nobody else could enter it for you",
    ("max_input_bytes", None): "its input is not stored",
}
"""Settings (with a value, or any) that mean nothing to a claim block, and what holds there instead."""


OF_CLIENT = ("app", "tenant", "cipher", "accept_plain", "cache", "counters", "operations")
OF_DECORATOR = ("key", "name", "tenant", "version")
OF_BLOCK = ("name", "payload", "note")
"""What may be given beside the settings, for those who mistype it."""


class BaseClient:
    """Configuration of a client. `Once` and `AsyncOnce` add the verbs, each in its own colour."""

    def __init__(
        self,
        store: Store | str | None = None,
        *,
        app: str = "default",
        tenant: str | None = None,
        cipher: Cipher | None = None,
        accept_plain: bool = False,
        cache: int = 0,
        counters: bool = False,
        operations: OperationsSource | None = None,
        **defaults: Any,
    ) -> None:
        refuse_skip(defaults)
        if accept_plain and cipher is None:
            raise ConfigurationError(
                "accept_plain=True says what a cipher may read, and there is none", hint="give cipher= with it"
            )
        if not (store is None or isinstance(store, str) or hasattr(store, "twin")) or store == "":
            raise ConfigurationError(
                f"{store!r} is no store", hint="give a URL such as sqlite:///onceward.db, or a store"
            )
        named = _store_in(operations) if store is None and isinstance(operations, str | os.PathLike) else None
        self._url = store_url(store, named) if store is None or isinstance(store, str) else None
        opened = open_store(self._url) if store is None or isinstance(store, str) else store
        self._app = app
        self._tenant = tenant
        self._cipher = cipher
        self._accept_plain = accept_plain
        self._cache = cache
        self._counts = counters
        self.policy = Policy().with_settings(defaults, beside=OF_CLIENT)  # type: ignore[arg-type]  # checked there, name by name
        self._defaults = dict(defaults)
        self._table = None if operations is None else _table_of(operations)
        if self._table is not None:
            self._table.check(self.policy)
        self._keep_no_operations()
        self._scopes: dict[str, Scope] = {}  # of keys that are given
        self._names: dict[tuple[Scope, bool], str] = {}  # who declared an operation first
        self.schedules: dict[str, Any] = {}
        self.sagas: dict[str, Any] = {}
        self.recoverable: list[Any] = []  # operations and sagas that keep their input
        self._connect(_cached(opened, cache) if cache else opened)

    def _connect(self, store: Store) -> None:
        from onceward.observe.log import logging_bus  # logging is a twentieth of our import time

        bus = logging_bus()
        self.counters = _counters(store, bus) if self._counts else None
        self.heartbeat = Heartbeat(store, bus)
        self.engine = Engine(store, self._runtime(), self.heartbeat, bus, THIS_PROCESS)
        self._beside: list[Engine] = []  # of the other colour; shared by all that `using` makes

    def _keep_no_operations(self) -> None:
        """Each colour keeps its own: what one may await, the other has to refuse."""
        self._operations: WeakKeyDictionary[Callable[..., Any], Operation] = WeakKeyDictionary()
        self._awaited_operations: WeakKeyDictionary[Callable[..., Any], Operation] = WeakKeyDictionary()

    def _runtime(self) -> Runtime:
        raise NotImplementedError

    @property
    def store(self) -> Store:
        """Where the records are."""
        return self.engine.store

    def using(self, *, tenant: str | None = None, **settings: Any) -> Self:
        """The same client (store, keeper, events) with other defaults or another tenant."""
        refuse_skip(settings)
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._tenant = tenant if tenant is not None else self._tenant
        other.policy = self.policy.with_settings(settings)  # type: ignore[arg-type]  # checked there, name by name
        other._defaults = {**self._defaults, **settings}
        other._keep_no_operations()
        other._scopes = {}
        return other

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Hear every event of this client; returns how to stop."""
        return self.engine.bus.subscribe(listener)

    @property
    def counts(self) -> dict[str, int]:
        """How often each event happened in this client so far, whether anybody listened or not."""
        return {name: number for name, number in self.engine.bus.counts.items() if number}

    def stop(self) -> None:
        """Claim nothing more from now on; what is running goes on. May be called from a signal handler."""
        self.engine.stopping = True

    @property
    def operations(self) -> Operations:
        """The table of operations that this client was given."""
        return _table_of(None) if self._table is None else self._table

    def compiled(
        self, fn: Callable[..., Any], settings: Mapping[str, Any], *, warned: bool = False, **parts: Any
    ) -> Operation:
        if not self._awaits and inspect.iscoroutinefunction(fn):
            raise ConfigurationError(
                f"{label_of(fn)} is async, and a blocking call cannot await it",
                hint="use AsyncOnce, or once.aio on this one",
            )
        if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            raise ConfigurationError(
                f"{label_of(fn)} yields: its work would happen after the key was given up", hint="let it return instead"
            )
        of = None if warned else ""
        policy = self.policy.with_settings(settings, of=of, beside=OF_DECORATOR)  # type: ignore[arg-type]  # checked there, name by name
        if not self._awaits:
            refuse_async_find(policy, label_of(fn))
        return Operation(
            fn,
            policy,
            app=self._app,
            fixed_tenant=self._tenant,
            cipher=self._cipher,
            accept_plain=self._accept_plain,
            explicit_fingerprint="fingerprint" in settings,
            **parts,
        )

    def declare(self, fn: Callable[..., Any], settings: Mapping[str, Any], **parts: Any) -> Operation:
        """The operation of a decorated function. Two functions of one name would replay each other's results."""
        operation = self.compiled(fn, settings, **parts)
        label = label_of(fn)
        first = self._names.setdefault((operation.scope, operation.awaits), label)  # a name for both colours is fine
        if first != label:
            warnings.warn(
                f"{first} and {label} are both declared under the name {operation.name!r}: "
                "for the same key they replay each other's results; give each a name= of its own",
                OncewardWarning,
                stacklevel=4,
            )
        self.keep_input_of(operation)
        return operation

    def keep_input_of(self, operation: Operation) -> None:
        """If that was chosen: then a recovery worker can finish what nobody delivers again."""
        if operation.policy.store_input:
            operation.keep_input()
            self.recoverable.append(operation)

    def key(self, key: Any, *, name: str | None = None) -> Key:
        """The key object for a key that you give yourself; `name` is the operation that it belongs to."""
        return key if isinstance(key, Key) else make_key(self._scope(name or COMMON), key)

    def _scope(self, operation: str) -> Scope:
        """Made once per operation: its text and its hash are worked out only then."""
        scope = self._scopes.get(operation)
        if scope is None:
            scope = Scope(self._app, operation, self._tenant)
            if len(self._scopes) < MOST_SCOPES:
                self._scopes[operation] = scope
        return scope

    def state_scope(self, name: str) -> Scope:
        """Whose entities a state of this name has."""
        return Scope(self._app, name, self._tenant)

    def codec(self, annotation: Any = Any) -> Codec:
        return codec_for(self.policy, ResultType(annotation), self._cipher, accept_plain=self._accept_plain)

    def job(self, key: Any, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Job:
        """A job under a given key. Which function it is belongs to the payload: two never share a result."""
        if type(fn) is not FunctionType:
            fn, args, kwargs = laid_open(fn, args, kwargs)
        try:
            operation = self._operations[fn]
        except (KeyError, TypeError):  # new, or it cannot be referred to weakly
            operation = self._operation_of(fn)
        given = key if type(key) is Key else self.key(key)
        if not operation.compares:
            if args or kwargs or operation.binding.names:  # else there is nothing that could be amiss
                operation.arguments(args, kwargs)
            return Job(
                given, self.policy, operation.codec, b"", NO_MARKS, fn, args, kwargs, self._awaits, NO_NOTE, NO_NOTE
            )
        payload = operation.payload(operation.arguments(args, kwargs))
        payload[FUNCTION] = label_of(fn)
        marks = parts(payload, given.id)
        return Job(given, self.policy, operation.codec, fingerprint(payload), marks, fn, args, kwargs, self._awaits)

    def _operation_of(self, fn: Callable[..., Any]) -> Operation:
        """What is known about a function that was not decorated: found out once, and kept while the function lives."""
        operation = self.compiled(fn, {"fingerprint": self.policy.fingerprint}, name=COMMON)
        operation.let_go()
        with contextlib.suppress(TypeError):
            self._operations[fn] = operation
        return operation

    def claim_job(
        self, key: Any, name: str | None, payload: Any, note: dict[str, str], settings: Mapping[str, Any]
    ) -> Job:
        refuse_of_block(settings)
        given = self.key(key, name=name)
        note = checked_note(note, key=given.text)
        policy = self.policy.with_settings(settings, beside=OF_BLOCK)  # type: ignore[arg-type]  # checked there, name by name
        if not self._awaits:
            refuse_async_find(policy, "this block")
        codec = codec_for(policy, ResultType(Any), self._cipher, accept_plain=self._accept_plain)
        if payload is None:
            return Job(given, policy, codec, note=note)
        named = payload if isinstance(payload, dict) else {"payload": payload}
        return Job(given, policy, codec, fingerprint(named), parts(named, given.id), note=note)

    def job_maker(
        self, fn: Any, key: KeySource, name: str | None, settings: Mapping[str, Any]
    ) -> tuple[Operation, Callable[[tuple[Any, ...], dict[str, Any]], Job | Exception]]:
        """What makes the job of a call, or the error that it has none. If `fn` is decorated, its own choices hold."""
        operation = getattr(fn, "operation", None)
        if isinstance(operation, Operation) and isinstance(fn, MethodType):
            fn = fn.__func__.__get__(
                fn.__self__, type(fn.__self__)
            )  # a class method, which Python 3.13 binds by itself
        if not isinstance(operation, Operation):
            operation = self.compiled(fn, settings, key=key, name=name or name_of(fn), awaits=self._awaits)
            return operation, functools.partial(job_or_error, operation.job)
        if key is not None or name is not None or settings:
            raise ConfigurationError(
                f"{operation.name} is decorated already: its own key and settings hold", hint="leave them out here"
            )
        if operation.awaits is not self._awaits:
            raise ConfigurationError(
                f"{operation.name} is {'async' if operation.awaits else 'not async'}, unlike this client",
                hint="map async functions with AsyncOnce (or once.aio), the others with Once",
            )
        return operation, functools.partial(job_or_error, fn.job)  # with its receiver, if it is a method

    _awaits = False

    def __repr__(self) -> str:
        tenant = "" if self._tenant is None else f", tenant={self._tenant!r}"
        return f"<{type(self).__name__} on {self.store.name}, app={self._app!r}{tenant}>"

    def __reduce__(self) -> Any:
        if self._url is None:
            raise TypeError(
                f"a {type(self).__name__} on a store object cannot be pickled; make it from a URL: {type(self).__name__}('sqlite:///…')"
            )
        settings = {"app": self._app, "tenant": self._tenant, "cache": self._cache, **self._defaults}
        if self._counts:
            settings["counters"] = True
        if self._table is not None:
            settings["operations"] = self._table
        if self._cipher is not None:
            raise TypeError("a client with a cipher is not pickled: keys must not travel with it")
        return _remake, (type(self), self._url, settings)


def laid_open(
    fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]:
    """The function itself, with all of its arguments: what a partial or a method holds belongs to the payload, too."""
    if not callable(fn):
        raise ConfigurationError(
            f"{fn!r} cannot be called", hint="pass the function and its arguments apart: run(key, fn, …)"
        )
    while isinstance(fn, functools.partial):
        args, kwargs, fn = (*fn.args, *args), {**fn.keywords, **kwargs}, fn.func
    if isinstance(fn, MethodType):
        args, fn = (fn.__self__, *args), fn.__func__
    return fn, args, kwargs


def job_or_error(
    make: Callable[[tuple[Any, ...], dict[str, Any]], Job], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Job | Exception:
    """The job of one item among many. What cannot be made is the trouble of this one alone."""
    try:
        return make(args, kwargs)
    except Exception as error:  # noqa: BLE001 (a key callable is the user's own function)
        return error


def by_text(key: Any, name: str | None) -> bool:
    """Whether a record may be looked for by what people see of its key: the text, and the operation's name."""
    return isinstance(key, str) and name is not None


def refuse_async_find(policy: Policy, what: str) -> None:
    if inspect.iscoroutinefunction(policy.find):
        raise ConfigurationError(
            f"{what} is not async, so its verify cannot await {label_of(policy.find)}",
            hint="make find a plain function, or the work async",
        )


def refuse_skip(defaults: Mapping[str, Any]) -> None:
    for name in ("on_running", "on_done"):
        if defaults.get(name) == "skip":
            raise ConfigurationError(
                "skip makes a call return None, so it is declared on the function itself", hint=f'@once({name}="skip")'
            )


def refuse_of_block(settings: Mapping[str, Any]) -> None:
    """Choices that say how a function is called: a block would ignore them, and its author would rely on them."""
    for name, value in settings.items():
        reason = OF_FUNCTIONS.get((name, value if isinstance(value, str) else None)) or OF_FUNCTIONS.get((name, None))
        if reason is not None:
            raise ConfigurationError(
                f"claim({name}={value!r}) has no effect: a block is yours to run, and {reason}",
                hint="leave it out here; it is for decorated functions, run and map",
            )


def _table_of(given: OperationsSource | None) -> Operations:
    from onceward.operations.table import operations_of  # for those who declare any

    return operations_of(given)


def _store_in(path: str | os.PathLike[str]) -> str | None:
    """The file that declares the operations may name the store, too; the command reads it there."""
    from pathlib import Path

    from onceward.operations.settings_file import store_in

    return store_in(Path(path))


def _counters(store: Store, bus: Bus) -> Counters:
    from onceward.runtime.counters import Counters  # for those who ask for them

    return Counters(store, bus)


def count_outcomes(once: BaseClient) -> None:
    """Let a client count from now on, as with `counters=True`: for programs of ours that are given one.

    A store that cannot keep counters is left alone.
    """
    if once.counters is None and isinstance(once.store, KeepsCounters):
        once.counters = _counters(once.store, once.engine.bus)
        for engine in (once.engine, *once._beside):  # noqa: SLF001 (those of its own that were made before)
            engine.count_by_scope()


def _cached(store: Store, most: int) -> Store:
    from onceward.stores.cached import CachedStore  # for those who ask for it

    return CachedStore(store, most)


def _remake(client: type[BaseClient], url: str, settings: dict[str, Any]) -> BaseClient:
    return client(url, **settings)


__all__ = ["BaseClient", "Defaults", "Settings"]
