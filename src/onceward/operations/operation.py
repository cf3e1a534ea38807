"""An operation: one function and its declared options, compiled once. It turns the arguments of a call into a job."""

from __future__ import annotations

import functools
import sys
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from onceward.engine.job import NO_KEY, NO_NOTE, Job
from onceward.errors import ConfigurationError, InvalidKey, MissingKey
from onceward.keys.fingerprint import FINGERPRINT_OF_KEY, fingerprint, hash_arguments
from onceward.keys.key import Key, Scope, make_key
from onceward.keys.small import is_small
from onceward.keys.sources import Call, Content, Payload, Source, source_for
from onceward.keys.template import Template
from onceward.protocol.policy import Policy
from onceward.results.cipher import Cipher
from onceward.results.codec import Codec
from onceward.results.result_type import ResultType

from .binding import Binding
from .payload import ComparedPayload

if TYPE_CHECKING:
    from onceward.results.stored_input import InputCodec

KeySource = str | list[str] | Callable[..., Any] | Source | None
TenantSource = str | Callable[..., Any] | None
VERSION_MARK = "#"
MAX_CACHED_SCOPES = 256
"""How many scopes of recently used tenants are cached."""
NO_ARGUMENT_HASHES: dict[str, str] = {}
NO_ARGUMENTS: dict[str, Any] = {}


class Operation:
    """Everything about a function except running it: its scope, key, fingerprint and result type."""

    def __init__(
        self,
        fn: Callable[..., Any],
        policy: Policy,
        *,
        app: str,
        name: str | None = None,
        version: str | int | None = None,
        key: KeySource = None,
        tenant: TenantSource = None,
        fixed_tenant: str | None = None,
        cipher: Cipher | None = None,
        accept_plain: bool = False,
        fingerprint_key: bytes = b"",
        is_async: bool = False,
        explicit_fingerprint: bool = False,
        table_settings: tuple[str, ...] | None = None,
    ) -> None:
        self.fn = fn
        self.policy = policy
        self.table_settings = table_settings
        """The settings that the table of operations declares; None if the operation is not declared in a table."""
        self.is_async = is_async
        self.name = name or name_of(fn)
        self.binding = Binding(fn)
        self._is_classmethod = self.binding.receiver == "cls" and _is_in_class(fn)
        self._is_function = self.binding.receiver is None  # not a method
        self.source = source_for(key)
        self._check_source()
        self._tenant = _tenant_source(tenant)
        self._check_tenant()
        self.scope = Scope(app, versioned(self.name, version), fixed_tenant)
        self._tenant_scope = functools.lru_cache(MAX_CACHED_SCOPES)(functools.partial(Scope, app, self.scope.operation))
        self.codec = codec_for(policy, ResultType(result_annotation(fn)), cipher, accept_plain=accept_plain)
        self.payload = self._compared_payload(explicit=explicit_fingerprint)
        """Returns the arguments that the fingerprint covers."""
        self.uses_fingerprint = self.payload.is_used and not self.payload.is_covered
        self._reads_files = isinstance(self.source, Content) or isinstance(self.payload.source, Content)
        self._pick = self._picker()
        self.input: InputCodec | None = None
        self._cipher, self._accept_plain = cipher, accept_plain
        self.fingerprint_key = fingerprint_key

    @property
    def has_tenants(self) -> bool:
        """Whether each call may have its own tenant."""
        return self._tenant is not None

    @property
    def is_keyed_by_all_arguments(self) -> bool:
        """Whether the key contains all arguments, as it does without `key=`."""
        return isinstance(self.source, Payload) and not (self.source.arguments or self.source.exclude)

    def drop_function(self) -> None:
        """Drop the reference to the function.

        The client caches the operation for as long as the function lives. A reference from here would keep it alive.
        """
        del self.fn

    def keep_input(self) -> None:
        """Store the arguments of every later call with its claim, so that a recovery worker can finish the call."""
        from onceward.results.stored_input import InputCodec  # imported only if it is used

        if self.binding.receiver is not None:
            raise ConfigurationError(
                f"{self.name} is a method, and its object cannot be stored with the arguments",
                hint="store_input=True works for functions: use one that looks up the object",
            )
        self.input = InputCodec(
            self.fn,
            max_bytes=self.policy.max_input_bytes,
            compress_from=self.policy.compress_from,
            cipher=self._cipher,
            accept_plain=self._accept_plain,
        )

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the call's arguments by name, including defaults. `cls` becomes the name of its class."""
        if self._is_classmethod and not (isinstance(args[0], type) if args else "cls" in kwargs):
            raise ConfigurationError(
                f"{self.name} is a class method, and the call does not pass the class",
                hint="since Python 3.13, @classmethod binds plain calls only; pass it: Class.method.outcome(Class, …)",
            )
        arguments = self.binding.bind(*args, **kwargs)
        if self.binding.receiver is not None and self.binding.receiver == "cls" and isinstance(arguments["cls"], type):
            arguments["cls"] = f"{arguments['cls'].__module__}.{arguments['cls'].__qualname__}"
        return arguments

    def key(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Key:
        return self._key(self.arguments(args, kwargs))

    def _picker(self) -> Callable[..., Any] | None:
        """Return a function that picks the argument that alone determines the job; None if no single argument does."""
        only = self.source.only_parameter if isinstance(self.source, Template) else None
        applies = (
            self._is_function and self._tenant is None and not self.uses_fingerprint and only in self.binding.names
        )
        return self.binding.picker(only) if only is not None and applies else None

    def job(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Job:
        pick, arguments = self._pick, NO_ARGUMENTS
        value = None if pick is None else pick(*args, **kwargs) if kwargs else pick(*args)
        if type(value) is str and value:  # the usual type of keys
            key = make_key(self.scope, value)
        else:
            arguments = self.binding.bind(*args, **kwargs) if self._is_function else self.arguments(args, kwargs)
            try:
                key = self._key(arguments)
            except MissingKey:
                if self.policy.on_missing_key == "raise":
                    raise
                return Job(
                    NO_KEY, self.policy, self.codec, call=self.fn, args=args, kwargs=kwargs, is_async=self.is_async
                )
        if not self.uses_fingerprint:
            payload_hash = FINGERPRINT_OF_KEY if self.payload.is_used else b""
            job = Job(
                key,
                self.policy,
                self.codec,
                payload_hash,
                NO_ARGUMENT_HASHES,
                self.fn,
                args,
                kwargs,
                self.is_async,
                NO_NOTE,
                NO_NOTE,
            )
            return job if self.input is None else with_stored_input(self.input, job)
        payload = self.payload(arguments)
        try:
            secret = self.fingerprint_key
            payload_hash, hashes = fingerprint(payload, secret), hash_arguments(payload, key.id, secret)
        except InvalidKey as error:
            raise InvalidKey(
                f"{self.name}: {error}",
                key=key.text,
                hint='or declare which arguments are payload: fingerprint=["order", "cents"], or fingerprint="none"',
            ) from error
        job = Job(
            key,
            self.policy,
            self.codec,
            payload_hash,
            hashes,
            self.fn,
            args,
            kwargs,
            self.is_async,
            NO_NOTE,
            NO_NOTE,
        )
        return job if self.input is None else with_stored_input(self.input, job)

    def is_quick(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Return whether the job of this call is certainly built quickly: little to hash, and no file to read."""
        return not self._reads_files and is_small((*args, *kwargs.values()))

    def _key(self, arguments: Mapping[str, Any]) -> Key:
        scope = self.scope if self._tenant is None else self._tenant_scope(self._tenant_of(arguments))
        source = self.source  # calling a local name is faster than self.source(…)
        try:
            value, text = source(arguments)
            return make_key(scope, value, text)
        except InvalidKey as error:
            if self.binding.receiver is None or not str(error).startswith(f"key.{self.binding.receiver}:"):
                raise
            raise self._receiver_error(error) from None

    def _receiver_error(self, error: InvalidKey) -> InvalidKey:
        """Explain that `self` or `cls` cannot be part of a key unless its class defines what identifies it."""
        receiver, *others = self.binding.names
        fields = "".join(f":{{{name}}}" for name in others)
        method = self.name.rpartition(".")[2]
        key = f"{method}:{{{receiver}.account}}{fields}"
        return InvalidKey(
            f"{self.name}: {str(error).partition(' →')[0]}",
            hint=f'put what identifies the object in the key, such as key="{key}", or make its class a dataclass',
        )

    def _tenant_of(self, arguments: Mapping[str, Any]) -> str:
        """Return the tenant's full value, never its display text: two tenants could share a shortened text."""
        try:
            tenant = self._tenant(arguments)[0] if self._tenant is not None else None
        except MissingKey as error:
            text = str(error).partition(" →")[0].replace("the key", "the tenant", 1)
            raise MissingKey(f"{self.name}: {text}", hint="pass it: the tenant is part of the key") from None
        if not isinstance(tenant, str):
            raise InvalidKey(
                f"{self.name}: the tenant is {type(tenant).__name__}, not str",
                hint='write tenant="{org}" for a str argument, or tenant=lambda org: str(org)',
            )
        return str.__str__(tenant)  # a plain str: a subclass may define its own equality

    def _check_source(self) -> None:
        try:
            self.source.check(self.binding.names, has_var_keywords=self.binding.has_var_keywords)
        except ConfigurationError as error:
            raise ConfigurationError(f"{self.name}: {error}") from None

    def _check_tenant(self) -> None:
        try:
            if self._tenant is not None:
                self._tenant.check(self.binding.names, has_var_keywords=self.binding.has_var_keywords)
        except ConfigurationError as error:
            raise ConfigurationError(f"{self.name}: {str(error).replace('the key', 'the tenant', 1)}") from None

    def _compared_payload(self, *, explicit: bool) -> ComparedPayload:
        try:
            return ComparedPayload(self.policy, self.source, self.binding, explicit=explicit)
        except ConfigurationError as error:
            text = str(error).replace("the key", "the fingerprint", 1)
            raise ConfigurationError(f"{self.name}: {text}") from None


def with_stored_input(codec: InputCodec, job: Job) -> Job:
    """Return the job with its arguments in the note of the claim. Completion drops them."""
    from onceward.results.stored_input import INPUT_REMOVED

    note = codec.note(job.key.id, job.key.text, job.args, job.kwargs)
    return replace(job, note={**job.note, **note}, at_end=INPUT_REMOVED)


def codec_for(policy: Policy, result_type: ResultType, cipher: Cipher | None, *, accept_plain: bool = False) -> Codec:
    return Codec(
        result_type,
        store=policy.store_result,
        max_bytes=policy.max_result_bytes,
        compress_from=policy.compress_from,
        cipher=cipher,
        accept_plain=accept_plain,
    )


def versioned(name: str, version: str | int | None) -> str:
    """Return `charge` or `charge#2`. Different names and versions never give the same text; 2 and "2" differ too."""
    if VERSION_MARK in name:
        raise ConfigurationError(
            f"the name {name!r} contains {VERSION_MARK!r}, which separates name and version",
            hint="pass the version as version=",
        )
    return name if version is None else f"{name}{VERSION_MARK}{version!r}"


def name_of(fn: Callable[..., Any]) -> str:
    """Return module and qualified name. Functions of a script get its file name, so that import and run agree."""
    module = _module_of(fn)
    qualified = getattr(fn, "__qualname__", None)
    if not module or not qualified or "<lambda>" in qualified:
        raise ConfigurationError(
            f"{fn!r} has no name that its keys could contain", hint='give it one: @once(name="charge")'
        )
    return f"{module}.{qualified}"


def label_of(fn: Callable[..., Any]) -> str:
    """Return the name that identifies a function in messages and fingerprints. For a callable object: its class."""
    named = fn if hasattr(fn, "__qualname__") else type(fn)
    return f"{_module_of(named)}.{named.__qualname__}"


def _module_of(named: Any) -> str:
    module: str = getattr(named, "__module__", None) or ""
    if module != "__main__":
        return module
    from pathlib import PurePath  # imported here: only functions of the script itself need it

    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    file = getattr(main, "__file__", None)
    return spec.name.removesuffix(".__main__") if spec else PurePath(file).stem if file else module


def _is_in_class(fn: Any) -> bool:
    """Return whether the function was defined in a class body (other functions may have a parameter `cls` too)."""
    return "." in getattr(fn, "__qualname__", "").rpartition("<locals>.")[2]


def result_annotation(fn: Callable[..., Any]) -> Any:
    """Return the declared return type, or Any if it is missing or cannot be resolved."""
    try:
        return typing.get_type_hints(fn, include_extras=True).get("return", Any)
    except Exception:  # noqa: BLE001 (an unresolvable forward reference counts as no declaration)
        return Any


def _tenant_source(tenant: TenantSource) -> Template | Call | None:
    if tenant is None:
        return None
    source = source_for(tenant)
    if not isinstance(source, Template | Call):
        raise ConfigurationError("tenant= takes a template or a callable", hint='such as tenant="{org_id}"')
    return source
