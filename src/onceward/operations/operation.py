"""An operation: one function with its declared choices, compiled once, from which each call becomes a job."""

from __future__ import annotations

import functools
import sys
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from onceward.engine.job import NO_KEY, NO_NOTE, Job
from onceward.errors import ConfigurationError, InvalidKey, MissingKey
from onceward.keys.fingerprint import fingerprint, of_key, parts
from onceward.keys.key import Key, Scope, make_key
from onceward.keys.sources import Call, Content, JsonKey, Payload, Source, source_for
from onceward.keys.template import FirstOf, Template
from onceward.keys.weight import LIGHT_BYTES, are_light
from onceward.protocol.policy import Policy
from onceward.results.cipher import Cipher
from onceward.results.codec import Codec
from onceward.results.result_type import ResultType

from .binding import Binding

if TYPE_CHECKING:
    from onceward.results.stored_input import InputCodec

KeySource = str | list[str] | Callable[..., Any] | Source | None
TenantSource = str | Callable[..., Any] | None
VERSION_MARK = "#"
TENANTS = 256
"""So many scopes are kept for those who come again."""
NO_MARKS: dict[str, str] = {}
NO_ARGUMENTS: dict[str, Any] = {}


class Operation:
    """Whose keys, which key, which payload, which result: everything about a function but running it."""

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
        awaits: bool = False,
        explicit_fingerprint: bool = False,
    ) -> None:
        self.fn = fn
        self.policy = policy
        self.awaits = awaits
        self.name = name or name_of(fn)
        self.binding = Binding(fn)
        self._of_class = self.binding.receiver == "cls" and _is_in_class(fn)
        self._is_plain = self.binding.receiver is None  # no method of anything
        self.source = source_for(key)
        self._check_source()
        self._reads_files = isinstance(self.source, Content)
        self._tenant = _tenant_source(tenant)
        self._check_tenant()
        self.scope = Scope(app, versioned(self.name, version), fixed_tenant)
        self._scope_of = functools.lru_cache(TENANTS)(functools.partial(Scope, app, self.scope.operation))
        self.codec = codec_for(policy, ResultType(result_annotation(fn)), cipher, accept_plain=accept_plain)
        self._fields = _fingerprint_fields(self.source, policy, explicit=explicit_fingerprint)
        self._check_fingerprint()
        self.compares = self._fields is not None and (explicit_fingerprint or not self._key_says_all())
        self._pick = self._picker()
        self.input: InputCodec | None = None
        self._cipher, self._accept_plain = cipher, accept_plain

    def let_go(self) -> None:
        """Of the function: whoever asks has it, and what is kept for as long as it lives must not keep it alive."""
        del self.fn

    def keep_input(self) -> None:
        """From now on, every call's arguments are kept with its claim: others can finish it without a redelivery."""
        from onceward.results.stored_input import InputCodec  # for those who ask for it

        if self.binding.receiver is not None:
            raise ConfigurationError(
                f"{self.name} is a method, and its object cannot be kept with its arguments",
                hint="store_input=True is for functions: let one of them look the object up",
            )
        self.input = InputCodec(
            self.fn,
            max_bytes=self.policy.max_input_bytes,
            compress_from=self.policy.compress_from,
            cipher=self._cipher,
            accept_plain=self._accept_plain,
        )

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The call's arguments by name, defaults included. A class method's class counts by its name."""
        if self._of_class and not (isinstance(args[0], type) if args else "cls" in kwargs):
            raise ConfigurationError(
                f"{self.name} is a class method, and nothing says of which class",
                hint="since Python 3.13, @classmethod tells it to plain calls only: Class.method.outcome(Class, …)",
            )
        arguments = self.binding.bind(*args, **kwargs)
        if self.binding.receiver is not None and self.binding.receiver == "cls" and isinstance(arguments["cls"], type):
            arguments["cls"] = f"{arguments['cls'].__module__}.{arguments['cls'].__qualname__}"
        return arguments

    def key(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Key:
        return self._key(self.arguments(args, kwargs))

    def _picker(self) -> Callable[..., Any] | None:
        """What gives the one argument that is the whole key, where nothing else of a call is looked at; else None."""
        only = self.source.only if isinstance(self.source, Template) else None
        alone = self._is_plain and self._tenant is None and not self.compares and only in self.binding.names
        return self.binding.picker(only) if only is not None and alone else None

    def job(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Job:
        pick, arguments = self._pick, NO_ARGUMENTS
        value = None if pick is None else pick(*args, **kwargs) if kwargs else pick(*args)
        if (type(value) is str or type(value) is int) and value:  # what most keys are
            key = make_key(self.scope, value)
        else:
            arguments = self.binding.bind(*args, **kwargs) if self._is_plain else self.arguments(args, kwargs)
            try:
                key = self._key(arguments)
            except MissingKey:
                if self.policy.on_missing_key == "raise":
                    raise
                return Job(NO_KEY, self.policy, self.codec, call=self.fn, args=args, kwargs=kwargs, awaits=self.awaits)
        if not self.compares:
            mark = b"" if self._fields is None else of_key(key.id)
            job = Job(
                key, self.policy, self.codec, mark, NO_MARKS, self.fn, args, kwargs, self.awaits, NO_NOTE, NO_NOTE
            )
            return job if self.input is None else keeping_input(self.input, job)
        payload = self.payload(arguments)
        try:
            mark, marks = fingerprint(payload), parts(payload, key.id)
        except InvalidKey as error:
            raise InvalidKey(
                f"{self.name}: {error}",
                key=key.text,
                hint='or say which arguments are payload: fingerprint=["order", "cents"], or fingerprint="none"',
            ) from error
        job = Job(key, self.policy, self.codec, mark, marks, self.fn, args, kwargs, self.awaits, NO_NOTE, NO_NOTE)
        return job if self.input is None else keeping_input(self.input, job)

    def is_quick(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Whether the job of this call is evidently made in no time: little to hash, and no file to read."""
        if self._reads_files:
            return False
        if len(args) == 1 and not kwargs and type(args[0]) is str:  # as what most calls are made with
            return len(args[0]) <= LIGHT_BYTES
        return are_light(args, kwargs)

    def _key(self, arguments: Mapping[str, Any]) -> Key:
        scope = self.scope if self._tenant is None else self._scope_of(self._tenant_in(arguments))
        source = self.source  # named, it is called more quickly than as a method, which it is not
        try:
            value, text = source(arguments)
            return make_key(scope, value, text)
        except InvalidKey as error:
            if self.binding.receiver is None or not str(error).startswith(f"key.{self.binding.receiver}:"):
                raise
            raise self._of_method(error) from None

    def _of_method(self, error: InvalidKey) -> InvalidKey:
        """The object of a method has no place in a key unless its class says what it is made of."""
        receiver, *others = self.binding.names
        fields = "".join(f":{{{name}}}" for name in others)
        method = self.name.rpartition(".")[2]
        key = f"{method}:{{{receiver}.account}}{fields}"
        return InvalidKey(
            f"{self.name}: {str(error).partition(' →')[0]}",
            hint=f'say what tells its objects apart, such as key="{key}", or make its class a dataclass',
        )

    def _tenant_in(self, arguments: Mapping[str, Any]) -> str:
        """The tenant's own value, never its text for people: two tenants must not meet in a shortened form."""
        try:
            tenant = self._tenant(arguments)[0] if self._tenant is not None else None
        except MissingKey as error:
            text = str(error).partition(" →")[0].replace("the key", "the tenant", 1)
            raise MissingKey(f"{self.name}: {text}", hint="pass it: whose key it is must be known") from None
        if not isinstance(tenant, str):
            raise InvalidKey(
                f"{self.name}: the tenant is {type(tenant).__name__}, not str",
                hint='write tenant="{org}" for a str argument, or tenant=lambda org: str(org)',
            )
        return str.__str__(tenant)  # a plain one: which of its kind are equal is not for a subclass to say

    def payload(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """What the fingerprint covers, if this operation `compares` anything. The receiver of a method is not in it."""
        receiver = self.binding.receiver
        if not self._fields:
            return {name: value for name, value in arguments.items() if name != receiver}
        return {name: arguments[name] for name in self._fields}

    def _key_says_all(self) -> bool:
        """Whether one key can only ever mean one payload, so that there is nothing left to compare."""
        names = self._fields or [name for name in self.binding.names if name != self.binding.receiver]
        covered = isinstance(self.source, Template | FirstOf) and self.source.covers(names)
        return covered and not self.binding.has_var_keywords

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

    def _check_fingerprint(self) -> None:
        unknown = [
            name for name in self._fields or () if name not in self.binding.names and not self.binding.has_var_keywords
        ]
        if unknown:
            raise ConfigurationError(
                f"{self.name}: fingerprint names {unknown[0]!r}, which is no parameter",
                hint=f"the parameters are: {', '.join(self.binding.names) or 'none'}",
            )


def keeping_input(codec: InputCodec, job: Job) -> Job:
    """The job with its arguments in the claim's note, until it is completed."""
    from onceward.results.stored_input import DROPPED

    note = codec.note(job.key.id, job.key.text, job.args, job.kwargs)
    return replace(job, note={**job.note, **note}, at_end=DROPPED)


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
    """`charge` or `charge#2`: no name and version make the operation of another name, and `2` is not `"2"`."""
    if VERSION_MARK in name:
        raise ConfigurationError(
            f"the name {name!r} contains {VERSION_MARK!r}, which stands before a version", hint="give version= apart"
        )
    return name if version is None else f"{name}{VERSION_MARK}{version!r}"


def name_of(fn: Callable[..., Any]) -> str:
    """Module and qualified name. A script's functions are named after its file, so that import and run agree."""
    module = _module_of(fn)
    qualified = getattr(fn, "__qualname__", None)
    if not module or not qualified or "<lambda>" in qualified:
        raise ConfigurationError(
            f"{fn!r} has no name of its own that would make its keys", hint='give it one: @once(name="charge")'
        )
    return f"{module}.{qualified}"


def label_of(fn: Callable[..., Any]) -> str:
    """A name that tells functions apart, as far as they have one: of a callable object, its class's."""
    named = fn if hasattr(fn, "__qualname__") else type(fn)
    return f"{_module_of(named)}.{named.__qualname__}"


def _module_of(named: Any) -> str:
    module: str = getattr(named, "__module__", None) or ""
    if module != "__main__":
        return module
    from pathlib import PurePath  # here, because only functions of the script itself need it

    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    file = getattr(main, "__file__", None)
    return spec.name.removesuffix(".__main__") if spec else PurePath(file).stem if file else module


def _is_in_class(fn: Any) -> bool:
    """Whether it was defined in the body of a class, and not as a function that happens to have such a parameter."""
    return "." in getattr(fn, "__qualname__", "").rpartition("<locals>.")[2]


def result_annotation(fn: Callable[..., Any]) -> Any:
    """The declared return type; Any where it is missing or cannot be resolved."""
    try:
        return typing.get_type_hints(fn, include_extras=True).get("return", Any)
    except Exception:  # noqa: BLE001 (a forward reference that nobody can resolve means that nothing was declared)
        return Any


def _tenant_source(tenant: TenantSource) -> Template | FirstOf | Call | None:
    if tenant is None:
        return None
    source = source_for(tenant)
    if not isinstance(source, Template | Call):
        raise ConfigurationError("tenant= takes a template or a callable", hint='such as tenant="{org_id}"')
    return source


def _fingerprint_fields(source: Source, policy: Policy, *, explicit: bool) -> tuple[str, ...] | None:
    """None: no fingerprint; (): all arguments. A key made of the content needs none unless asked for."""
    if policy.fingerprint == "none" or (not explicit and isinstance(source, Payload | Content | JsonKey)):
        return None
    return () if policy.fingerprint == "all" else tuple(policy.fingerprint)
