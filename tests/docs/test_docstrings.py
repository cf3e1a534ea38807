"""Every public name has a docstring that says what its parameters mean, what it returns, and which errors it raises."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from enum import Enum
from importlib import import_module
from typing import Any, Protocol, is_typeddict

import pytest
from msgspec import Struct

from onceward import AsyncOnce, Once
from tests.public_api import MODULES, names_of
from tests.public_members import NOT_CREATED_BY_USERS, members_of

SECTION = re.compile(r"^ *(Args|Returns|Raises|Yields):$", re.MULTILINE)
ENTRY = re.compile(r"^    (\w+): (.+)$", re.MULTILINE)
FILLER = {"a", "an", "the", "of", "this", "to", "is", "for", "value", "values", "object", "text", "name", "given"}


def is_ours(value: Any) -> bool:
    return (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith("onceward")


def public_names() -> Iterator[tuple[str, Any]]:
    for module in map(import_module, MODULES):
        yield from ((f"{module.__name__}.{name}", getattr(module, name)) for name in names_of(module))


def documented() -> dict[str, tuple[Any, type | None]]:
    """Return what the reference shows: public functions, and the public methods and properties of public classes."""
    found: dict[str, tuple[Any, type | None]] = {}
    for _, value in public_names():
        if inspect.isclass(value) and is_ours(value):
            for member in members_of(value):
                found.setdefault(f"{value.__module__}.{value.__name__}.{member}", (static(value, member), value))
        elif is_ours(value):
            found.setdefault(f"{value.__module__}.{value.__name__}", (value, None))
    return found


def static(cls: type, name: str) -> Any:
    value = inspect.getattr_static(cls, name)
    return value.__func__ if isinstance(value, staticmethod | classmethod) else value


def missing_from(function: Any, owner: type | None) -> list[str]:
    """Return what the docstrings of the function and its class do not say."""
    own = docstring(function, owner)
    if not own:
        return ["a docstring"]
    if isinstance(function, property):
        return []
    text = f"{own}\n{inspect.getdoc(owner) if owner else ''}"
    signature = inspect.signature(function)
    found = [name for name in signature.parameters if name not in ("self", "cls") and not explains(text, name)]
    if returns_something(function, signature) and not re.search(r"\b(return|yield)|^Whether", own, re.IGNORECASE):
        found.append("what it returns")
    if raises(function) and not re.search(r"\braise", text, re.IGNORECASE):
        found.append("what it raises")
    return found + [f"{name}: more than its name" for name, said in ENTRY.findall(own) if is_empty(name, said)]


def docstring(function: Any, owner: type | None) -> str:
    """Return the docstring, or that of the method that it overrides."""
    name = getattr(function, "__name__", None) or function.fget.__name__
    return inspect.getdoc(function) or (inspect.getdoc(getattr(owner, name)) if owner else "") or ""


def explains(text: str, name: str) -> bool:
    """Return whether the text has an entry for the parameter, or names it in backticks."""
    return re.search(rf"^    {name}: \S|`[^`\n]*\b{name}\b[^`\n]*`", text, re.MULTILINE) is not None


def returns_something(function: Any, signature: inspect.Signature) -> bool:
    if signature.return_annotation in ("None", None, "NoReturn"):
        return False
    return signature.return_annotation is not inspect.Signature.empty or not inspect.isfunction(function)


def raises(function: Any) -> bool:
    """Return whether the function itself has a `raise` for its callers."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    found = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc is not None]
    return any(not ast.unparse(error).startswith("NotImplementedError") for error in found)


def is_empty(name: str, said: str) -> bool:
    words = set(re.findall(r"\w+", said.lower()))
    return words <= FILLER | {name, *name.split("_")}


@pytest.mark.finding("N59")
def test_every_public_class_and_function_has_a_docstring() -> None:
    names = [name for name, value in public_names() if is_ours(value) and not (value.__doc__ or "").strip()]
    assert not names, "their docstrings are the reference"


@pytest.mark.finding("N59")
def test_every_public_method_says_what_it_takes_returns_and_raises() -> None:
    gaps = {name: missing for name, shown in documented().items() if (missing := missing_from(*shown))}
    assert not gaps, "\n".join(f"{name} does not say: {', '.join(missing)}" for name, missing in gaps.items())


@pytest.mark.finding("N59")
def test_every_constructor_says_what_its_parameters_mean() -> None:
    gaps = {name: missing for name, cls in created_by_users().items() if (missing := unexplained_parameters(cls))}
    assert not gaps, "\n".join(f"{name} does not explain: {', '.join(missing)}" for name, missing in gaps.items())


def created_by_users() -> dict[str, type]:
    """Return the public classes whose objects applications create; not plain data, errors and protocols."""
    classes = (value for _, value in public_names() if inspect.isclass(value) and is_ours(value))
    return {
        f"{cls.__module__}.{cls.__name__}": cls
        for cls in classes
        if not issubclass(cls, (BaseException, Enum, Struct))
        and Protocol not in cls.__bases__
        and not is_typeddict(cls)
        and cls.__name__ not in NOT_CREATED_BY_USERS
    }


def unexplained_parameters(cls: type) -> list[str]:
    """Return the parameters of the constructor that neither it, nor the class, nor a base class explains."""
    ours = [base for base in cls.__mro__ if base.__module__.startswith("onceward")]
    described = [*ours, inspect.getattr_static(cls, "__init__")]
    texts = [inspect.getdoc(one) or "" for one in described]
    return [name for name in inspect.signature(cls).parameters if not explains("\n".join(texts), name)]


def test_most_public_names_are_checked() -> None:
    names = documented()
    assert "onceward.client.sync.Once.run" in names
    assert "onceward.protocol.ports.Store.claim" in names
    assert "onceward.client.sync.Once" in created_by_users()
    assert len(names) > MOST


MOST = 500
"""The check must not pass because it finds nothing to check."""


def test_the_async_client_has_the_methods_of_the_sync_one_with_docstrings() -> None:
    for name in members_of(Once):
        if name != "aio":
            assert inspect.getdoc(getattr(AsyncOnce, name)), name


def charge(cents: int) -> str:
    """Charge."""
    if cents < 0:
        raise ValueError(cents)
    return str(cents)


def refund(cents: int) -> str:
    """Refund, and return the receipt.

    Args:
        cents: The cents.
    """
    return str(cents)


@pytest.mark.parametrize(
    ("function", "missing"),
    [
        (charge, ["cents", "what it returns", "what it raises"]),
        (refund, ["cents: more than its name"]),
    ],
)
def test_an_incomplete_docstring_is_reported(function: Callable[..., Any], missing: list[str]) -> None:
    assert missing_from(function, None) == missing
