"""What `Once` and `AsyncOnce` share: configuration, and building jobs. It does not talk to the store."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import warnings
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Self, Unpack
from weakref import WeakKeyDictionary

from onceward.engine.job import NO_NOTE, Job
from onceward.engine.rollout import Mode
from onceward.errors import ConfigurationError, OncewardWarning
from onceward.keys.fingerprint import checked_fingerprint_key, fingerprint, hash_arguments
from onceward.keys.key import Key, Scope, make_key
from onceward.operations.operation import NO_ARGUMENT_HASHES, KeySource, Operation, codec_for, label_of, name_of
from onceward.protocol.history import HistoryMode
from onceward.protocol.note import validate_note
from onceward.protocol.policy import Defaults, Policy
from onceward.protocol.ports import Store
from onceward.protocol.runtime import Runtime
from onceward.results.cipher import Cipher
from onceward.results.codec import Codec
from onceward.results.result_type import ResultType
from onceward.results.value_type import VALUE_TYPE, type_for_block
from onceward.runtime.heartbeat import Heartbeat
from onceward.runtime.owner import THIS_PROCESS
from onceward.stores.registry import open_store, store_url

from .controls import ClientControls
from .counting import start_collecting
from .declarations import DeclaredOperations, DeclaringEngine
from .declared_functions import DeclaredFunctions, warn_if_never_stored
from .refusals import refuse_async_find, refuse_function_settings, refuse_no_store, refuse_skip

if TYPE_CHECKING:
    from onceward.operations.table import Operations, OperationsSource

FUNCTION_FIELD = "function()"
"""The fingerprint of `run` contains the function under this name, which no parameter can have."""

SHARED_OPERATION = "shared"
"""The operation of keys that are given directly (`run`, `claim`): like lock names, the same key is the same work."""

MAX_CACHED_SCOPES = 1_000
"""Limit of the scope cache. Operation names may come from outside, so the cache must not grow without limit."""


CLIENT_OPTIONS = (
    "app", "tenant", "cipher", "accept_plain", "fingerprint_key", "cache", "counters", "history", "operations", "mode",
)  # fmt: skip
DECORATOR_OPTIONS = ("key", "name", "tenant", "version")
BLOCK_OPTIONS = ("name", "payload", "note", "type")
"""Accepted in addition to the policy settings. Listed so that the error for a mistyped name can suggest them."""


class BaseClient(ClientControls):
    """The configuration of a client. `Once` and `AsyncOnce` add the methods."""

    def __init__(
        self,
        store: Store | str | None = None,
        *,
        app: str = "default",
        tenant: str | None = None,
        cipher: Cipher | None = None,
        accept_plain: bool = False,
        fingerprint_key: bytes | None = None,
        cache: int = 0,
        counters: bool = False,
        history: HistoryMode = "problems",
        operations: OperationsSource | None = None,
        mode: Mode | None = None,
        **defaults: Unpack[Defaults],
    ) -> None:
        refuse_skip(defaults)
        if accept_plain and cipher is None:
            raise ConfigurationError("accept_plain=True has no effect without a cipher", hint="pass cipher= too")
        refuse_no_store(store)
        file_url = _declared_store(operations) if store is None and isinstance(operations, str | os.PathLike) else None
        self._url = store_url(store, file_url) if store is None or isinstance(store, str) else None
        opened = open_store(self._url) if store is None or isinstance(store, str) else store
        self._app = app
        self._tenant = tenant
        self._cipher = cipher
        self._accept_plain = accept_plain
        self.fingerprint_key = checked_fingerprint_key(fingerprint_key)
        self._cache = cache
        self._counts = counters
        self._history: HistoryMode = history
        self.policy = Policy().with_settings(defaults, also_allowed=CLIENT_OPTIONS)
        self._defaults = dict(defaults)
        self._table = None if operations is None else _operations_table(operations)
        if self._table is not None:
            self._table.check(self.policy)
        self._reset_operation_caches()
        self._scopes: dict[str, Scope] = {}  # by operation, for keys that are given directly
        self._names: dict[tuple[Scope, bool], str] = {}  # which function declared an operation first
        self.declared_functions = DeclaredFunctions()
        self.schedules: dict[str, Any] = {}
        self.sagas: dict[str, Any] = {}
        self.recoverable: list[Any] = []  # operations and sagas that store their input
        self._connect(opened)
        self._set_first_mode(mode)

    def _connect(self, store: Store) -> None:
        from onceward.observe.log import logging_bus  # not at the top: logging takes 5 % of our import time

        if self._cache:
            from onceward.stores.cached import CachedStore  # imported only if it is used

            store = CachedStore(store, self._cache)
        bus = logging_bus()
        self.background, self.counters = start_collecting(store, bus, counters=self._counts, history=self._history)
        self.heartbeat = Heartbeat(store, bus)
        self.engine = self._engine_type(store, self._runtime(), self.heartbeat, bus, THIS_PROCESS)
        self.engine.declared = DeclaredOperations()
        # At most one, for `Once.aio`. All clients that `using` returns share it.
        self._async_engines: list[DeclaringEngine] = []

    def _reset_operation_caches(self) -> None:
        """Create separate caches for sync and async calls: an async function is an error in a sync call."""
        self._operations: WeakKeyDictionary[Callable[..., Any], Operation] = WeakKeyDictionary()
        self._async_operations: WeakKeyDictionary[Callable[..., Any], Operation] = WeakKeyDictionary()

    def _runtime(self) -> Runtime:
        raise NotImplementedError

    @property
    def store(self) -> Store:
        """The store that holds the records."""
        return self.engine.store

    def using(self, *, tenant: str | None = None, **settings: Any) -> Self:
        """Return a client with another tenant, or with policy `settings` that override the defaults of this one.

        It shares the store, heartbeat and events. A `tenant` of None keeps that of this client.
        """
        refuse_skip(settings)
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._tenant = tenant if tenant is not None else self._tenant
        other.policy = self.policy.with_settings(settings)  # type: ignore[arg-type]  # checked there, name by name
        other._defaults = {**self._defaults, **settings}
        other._reset_operation_caches()
        other._scopes = {}
        return other

    @property
    def operations(self) -> Operations:
        """The table of operations that this client was created with."""
        return _operations_table(None) if self._table is None else self._table

    def compile_operation(
        self, fn: Callable[..., Any], settings: Mapping[str, Any], *, warned: bool = False, **options: Any
    ) -> Operation:
        """Check the function and its settings. With `warned=True`, a window that is too short is not reported again."""
        if not self._is_async and inspect.iscoroutinefunction(fn):
            raise ConfigurationError(
                f"{label_of(fn)} is async, and a sync call cannot await it",
                hint="use AsyncOnce, or once.aio of this client",
            )
        if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            raise ConfigurationError(
                f"{label_of(fn)} is a generator: its work would run after the key was released",
                hint="return a value instead of yielding",
            )
        of = None if warned else ""
        policy = self.policy.with_settings(settings, operation=of, also_allowed=DECORATOR_OPTIONS)  # type: ignore[arg-type]  # checked there, name by name
        if not self._is_async:
            refuse_async_find(policy, label_of(fn))
        return Operation(
            fn,
            policy,
            app=self._app,
            fixed_tenant=self._tenant,
            cipher=self._cipher,
            accept_plain=self._accept_plain,
            fingerprint_key=self.fingerprint_key,
            explicit_fingerprint="fingerprint" in settings,
            **options,
        )

    def declare(self, fn: Callable[..., Any], settings: Mapping[str, Any], **options: Any) -> Operation:
        """Return the operation of a decorated function. Warn if another function has the same name.

        Two functions with one name would replay each other's results.
        """
        operation = self.compile_operation(fn, settings, **options)
        label = label_of(fn)
        # A sync and an async function may share a name.
        first = self._names.setdefault((operation.scope, operation.is_async), label)
        if first != label:
            warnings.warn(
                f"{first} and {label} are both declared under the name {operation.name!r}: "
                "for the same key they replay each other's results; give each a name= of its own",
                OncewardWarning,
                stacklevel=4,
            )
        warn_if_never_stored(fn, operation.policy, label)
        self.keep_input_of(operation)
        self._compare_later(operation)
        self.declared_functions.add(operation)
        return operation

    def _compare_later(self, operation: Operation) -> None:
        """Compare the operation with the previous deployment before the next call. See `DeclaredOperations.add`."""
        self.engine.declare(operation)

    def keep_input_of(self, operation: Operation) -> None:
        """Store the input of calls if the policy says so: then `recover` can finish calls without a redelivery."""
        if operation.policy.store_input:
            operation.keep_input()
            self.recoverable.append(operation)

    def key(self, key: Any, *, name: str | None = None) -> Key:
        """Return the `Key` object for a key, or raise InvalidKey. Nothing is read. `name` is its operation."""
        return key if isinstance(key, Key) else make_key(self._scope(name or SHARED_OPERATION), key)

    def _scope(self, operation: str) -> Scope:
        """Return the scope of an operation. It is cached, because computing its text and hash takes time."""
        scope = self._scopes.get(operation)
        if scope is None:
            scope = Scope(self._app, operation, self._tenant)
            if len(self._scopes) < MAX_CACHED_SCOPES:
                self._scopes[operation] = scope
        return scope

    def state_scope(self, name: str) -> Scope:
        """Return the scope of the entities of `state(name)`."""
        return Scope(self._app, name, self._tenant)

    def codec(self, annotation: Any = Any) -> Codec:
        """Return what encodes and decodes results of the type `annotation` with this client's settings and cipher."""
        return codec_for(self.policy, ResultType(annotation), self._cipher, accept_plain=self._accept_plain)

    def settings_for(self, key: Key) -> tuple[Codec, Policy]:
        """Return the codec and policy of the function that this key belongs to. Other results have their own type."""
        operation = self.declared_functions.find(key.scope)
        if operation is not None:
            return operation.codec, operation.policy
        return codec_for(self.policy, VALUE_TYPE, self._cipher, accept_plain=self._accept_plain), self.policy

    def job(self, key: Any, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Job:
        """Return a job under a given key. The function is part of the fingerprint, so two functions share no result."""
        if type(fn) is not FunctionType:
            fn, args, kwargs = unwrap_callable(fn, args, kwargs)
        try:
            operation = self._operations[fn]
        except (KeyError, TypeError):  # not cached yet, or it does not support weak references
            operation = self._operation_of(fn)
        given = key if type(key) is Key else self.key(key)
        if not operation.uses_fingerprint:
            if args or kwargs or operation.binding.names:
                operation.arguments(args, kwargs)  # only to raise for arguments that do not fit
            return Job(
                given,
                self.policy,
                operation.codec,
                b"",
                NO_ARGUMENT_HASHES,
                fn,
                args,
                kwargs,
                self._is_async,
                NO_NOTE,
                NO_NOTE,
            )
        payload = operation.payload(operation.arguments(args, kwargs))
        payload[FUNCTION_FIELD] = label_of(fn)
        hashes = hash_arguments(payload, given.id, self.fingerprint_key)
        hashed = fingerprint(payload, self.fingerprint_key)
        return Job(given, self.policy, operation.codec, hashed, hashes, fn, args, kwargs, self._is_async)

    def _operation_of(self, fn: Callable[..., Any]) -> Operation:
        """Return the operation of an undecorated function. It is cached for as long as the function lives."""
        operation = self.compile_operation(fn, {"fingerprint": self.policy.fingerprint}, name=SHARED_OPERATION)
        operation.drop_function()
        with contextlib.suppress(TypeError):
            self._operations[fn] = operation
        return operation

    def claim_job(
        self,
        key: Any,
        name: str | None,
        payload: Any,
        note: dict[str, str],
        settings: Mapping[str, Any],
        *,
        type: Any = Any,
    ) -> Job:
        refuse_function_settings(settings)
        given = self.key(key, name=name)
        note = validate_note(note, key=given.text)
        policy = self.policy.with_settings(settings, also_allowed=BLOCK_OPTIONS)  # type: ignore[arg-type]  # checked there, name by name
        if not self._is_async:
            refuse_async_find(policy, "this block")
        codec = codec_for(policy, type_for_block(type), self._cipher, accept_plain=self._accept_plain)
        if payload is None:
            return Job(given, policy, codec, note=note)
        named = payload if isinstance(payload, dict) else {"payload": payload}
        hashes = hash_arguments(named, given.id, self.fingerprint_key)
        return Job(given, policy, codec, fingerprint(named, self.fingerprint_key), hashes, note=note)

    def job_maker(
        self, fn: Any, key: KeySource, name: str | None, settings: Mapping[str, Any]
    ) -> tuple[Operation, Callable[[tuple[Any, ...], dict[str, Any]], Job | Exception]]:
        """Return the operation of `fn`, and a function that builds the job of a call or returns the error.

        If `fn` is decorated, its own key and settings are used.
        """
        operation = getattr(fn, "operation", None)
        if isinstance(operation, Operation) and isinstance(fn, MethodType):
            fn = fn.__func__.__get__(fn.__self__, type(fn.__self__))  # a class method, which Python 3.13 binds itself
        if not isinstance(operation, Operation):
            operation = self.compile_operation(fn, settings, key=key, name=name or name_of(fn), is_async=self._is_async)
            return operation, functools.partial(job_or_error, operation.job)
        if key is not None or name is not None or settings:
            raise ConfigurationError(
                f"{operation.name} is already decorated: its own key and settings are used", hint="leave them out here"
            )
        if operation.is_async is not self._is_async:
            raise ConfigurationError(
                f"{operation.name} is {'async' if operation.is_async else 'not async'}, unlike this client",
                hint="map async functions with AsyncOnce (or once.aio), sync functions with Once",
            )
        return operation, functools.partial(job_or_error, fn.job)  # fn.job knows the receiver of a bound method

    _is_async = False
    _engine_type: type[DeclaringEngine] = DeclaringEngine

    def __repr__(self) -> str:
        tenant = "" if self._tenant is None else f", tenant={self._tenant!r}"
        return f"<{type(self).__name__} on {self.store.name}, app={self._app!r}{tenant}>"

    def __reduce__(self) -> Any:
        if self._url is None:
            raise TypeError(
                f"a {type(self).__name__} on a store object cannot be pickled; create it from a URL: {type(self).__name__}('sqlite:///…')"
            )
        settings: dict[str, Any] = {"app": self._app, "tenant": self._tenant, "cache": self._cache, "mode": self._mode}
        settings |= {**self._defaults, "history": self._history}
        if self._counts:
            settings["counters"] = True
        if self._table is not None:
            settings["operations"] = self._table
        if self._cipher is not None:
            raise TypeError("a client with a cipher cannot be pickled: the pickle would contain its keys")
        if self.fingerprint_key:
            raise TypeError("a client with a fingerprint_key cannot be pickled: the pickle would contain the key")
        return functools.partial(type(self), self._url, **settings), ()


def unwrap_callable(
    fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]:
    """Return the underlying function and all arguments, including those that a partial or a bound method holds.

    They belong to the payload like any other argument.
    """
    if not callable(fn):
        raise ConfigurationError(
            f"{fn!r} is not callable", hint="pass the function and its arguments separately: run(key, fn, …)"
        )
    while isinstance(fn, functools.partial):
        args, kwargs, fn = (*fn.args, *args), {**fn.keywords, **kwargs}, fn.func
    if isinstance(fn, MethodType):
        args, fn = (fn.__self__, *args), fn.__func__
    return fn, args, kwargs


def job_or_error(
    make: Callable[[tuple[Any, ...], dict[str, Any]], Job], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Job | Exception:
    """Build the job of one item among many. Return the error instead of raising it: it must not affect the others."""
    try:
        return make(args, kwargs)
    except Exception as error:  # noqa: BLE001 (a key callable is the user's own function)
        return error


def by_text(key: Any, name: str | None) -> bool:
    """Return whether the record may be searched by the key's display text: only if the operation's name is given."""
    return isinstance(key, str) and name is not None


def _operations_table(given: OperationsSource | None) -> Operations:
    from onceward.operations.table import as_operations  # imported only if it is used

    return as_operations(given)


def _declared_store(path: str | os.PathLike[str]) -> str | None:
    """Return the store URL of the file that declares the operations, if it has one. The CLI reads it there too."""
    from pathlib import Path

    from onceward.operations.settings_file import declared_store

    return declared_store(Path(path))
