"""The public API as text: every public module, name and signature. `python -m tests.public_api > tests/public_api.txt`.

`tests/unit/test_public_api.py` compares the committed text with the code, so that a change of the API shows in a diff.
"""

from __future__ import annotations

import enum
import inspect
import typing
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from tests.public_members import INTERNAL

MODULES = (
    "onceward",
    "onceward.administration",
    "onceward.django",
    "onceward.django.testing",
    "onceward.console",
    "onceward.console.django",
    "onceward.console.wsgi",
    "onceward.errors",
    "onceward.http.asgi",
    "onceward.http.client_keys",
    "onceward.http.fastapi",
    "onceward.http.flask",
    "onceward.http.litestar",
    "onceward.http.oidc",
    "onceward.http.push",
    "onceward.http.quota",
    "onceward.http.signatures",
    "onceward.http.starlette",
    "onceward.http.tokens",
    "onceward.http.webhooks",
    "onceward.http.wsgi",
    "onceward.imports",
    "onceward.latest",
    "onceward.locks",
    "onceward.objects",
    "onceward.observe",
    "onceward.observe.opentelemetry",
    "onceward.observe.prometheus",
    "onceward.operations",
    "onceward.people",
    "onceward.people.aio",
    "onceward.protocol.capabilities",
    "onceward.protocol.ports",
    "onceward.queues",
    "onceward.queues.kafka",
    "onceward.queues.nats",
    "onceward.queues.pubsub",
    "onceward.queues.rabbitmq",
    "onceward.queues.redis_streams",
    "onceward.queues.sqs",
    "onceward.recovery",
    "onceward.results",
    "onceward.sagas",
    "onceward.schedules",
    "onceward.sqlalchemy",
    "onceward.stores",
    "onceward.stores.firestore",
    "onceward.stores.memory",
    "onceward.stores.postgres",
    "onceward.stores.redis",
    "onceward.stores.sqlite",
    "onceward.testing",
    "onceward.testing.conformance",
    "onceward.testing.history",
    "onceward.testing.queues",
    "onceward.testing.storm",
    "onceward.warehouse",
)
"""What applications may import. Everything else is internal and may change without notice."""


def describe() -> Iterator[str]:
    for name in MODULES:
        module = import_module(name)
        yield f"# {name}"
        for public in names_of(module):
            yield from describe_name(public, getattr(module, public))
        yield ""


def names_of(module: ModuleType) -> list[str]:
    """Return what the module exports: `__all__`, or else what it defines itself without a leading underscore."""
    exported: list[str] | None = getattr(module, "__all__", None)
    if exported is not None:
        return sorted(exported)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module.__name__
    )


def describe_name(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield f"class {name}{bases_of(value)}"
        yield from describe_members(value)
    elif inspect.isfunction(value):
        yield f"def {name}{signature_of(value)}"
    elif inspect.ismodule(value):
        yield f"module {name}"
    else:
        yield f"{name}: {type(value).__name__}"


def bases_of(cls: type) -> str:
    bases = [base.__name__ for base in cls.__bases__ if base is not object]
    return f"({', '.join(bases)})" if bases else ""


def describe_members(cls: type) -> Iterator[str]:
    if issubclass(cls, enum.Enum):
        yield f"    {', '.join(cls.__members__)}"
        return
    if _own_init(cls) or hasattr(cls, "__struct_fields__"):
        yield f"    __init__{signature_of(cls)}"
    if typing.is_typeddict(cls):
        yield from (f"    {name}: {hint}" for name, hint in sorted(cls.__annotations__.items()))
        return
    for name in sorted(member for member in dir(cls) if not member.startswith("_") or member == "__call__"):
        owner = next(base for base in cls.__mro__ if name in vars(base))
        if not owner.__module__.startswith("onceward"):
            continue
        if any(name in INTERNAL.get(base.__name__, ()) for base in cls.__mro__):
            continue
        member = inspect.getattr_static(cls, name)
        if isinstance(member, property):
            yield f"    {name}: property"
        elif isinstance(member, staticmethod | classmethod):
            yield f"    {name}{signature_of(member.__func__)}"
        elif inspect.isfunction(member):
            prefix = "async " if inspect.iscoroutinefunction(member) else ""
            yield f"    {prefix}{name}{signature_of(member)}"


def _own_init(cls: type) -> bool:
    """Return whether the class or one of our base classes of it defines `__init__`."""
    return any("__init__" in vars(base) for base in cls.__mro__ if base.__module__.startswith("onceward"))


def signature_of(value: Any) -> str:
    """Return parameter names, kinds and defaults. Annotations are left to the type checkers' own tests."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(…)"
    parameters = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    shown = [one if _is_stable(one.default) else one.replace(default=_ComputedDefault()) for one in parameters]
    return str(signature.replace(parameters=shown, return_annotation=inspect.Signature.empty))


class _ComputedDefault:
    """Stands for a default whose repr says nothing, or differs between versions of Python."""

    def __repr__(self) -> str:
        return "…"


def _is_stable(default: object) -> bool:
    return (
        default is inspect.Parameter.empty or default is None or isinstance(default, bool | int | float | str | bytes)
    )


if __name__ == "__main__":
    print("\n".join(describe()).strip())
