"""Every public name has a docstring. Those of the core also name their parameters, their result and their errors."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

import onceward
from onceward import AsyncOnce, Claim, Once
from tests.public_api import MODULES, names_of

INTERNAL = {"claim_job", "compile_operation", "declare", "job", "job_maker", "keep_input_of", "state_scope", "codec"}
"""Methods that the decorators and features of Onceward call; the reference does not explain them."""


def is_ours(value: Any) -> bool:
    return (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith("onceward")


def public_names() -> Iterator[tuple[str, Any]]:
    for module in map(import_module, MODULES):
        yield from ((f"{module.__name__}.{name}", getattr(module, name)) for name in names_of(module))


def core() -> dict[str, tuple[Callable[..., Any], type | None]]:
    """Return what most programs call: functions of `onceward`, methods of clients and claims."""
    found: dict[str, tuple[Callable[..., Any], type | None]] = {
        name: (value, None) for name in onceward.__all__ if inspect.isfunction(value := getattr(onceward, name))
    }
    for owner in (Once, Claim):
        for name in dir(owner):
            value = inspect.getattr_static(owner, name)
            if inspect.isfunction(value) and (name[0] != "_" or name == "__call__") and name not in INTERNAL:
                found[f"{owner.__name__}.{name}"] = (value, owner)
    return found


def missing_from(function: Callable[..., Any], owner: type | None) -> list[str]:
    """Return what the docstrings of the function and its class do not say."""
    text = f"{inspect.getdoc(function)}\n{inspect.getdoc(owner) if owner else ''}"
    signature = inspect.signature(function)
    parameters = [name for name in signature.parameters if name != "self"]
    found = [name for name in parameters if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]
    if signature.return_annotation not in ("None", None) and not re.search(
        r"\b[Rr]eturn", inspect.getdoc(function) or ""
    ):
        found.append("what it returns")
    if owner is not None and not re.search(r"\b[Rr]aise", text):
        found.append("what it raises")
    return found


@pytest.mark.finding("N59")
def test_every_public_class_and_function_has_a_docstring() -> None:
    names = [name for name, value in public_names() if is_ours(value) and not (value.__doc__ or "").strip()]
    assert not names, "their docstrings are the reference"


@pytest.mark.finding("N59")
@pytest.mark.parametrize("name", sorted(core()))
def test_the_core_says_what_it_takes_returns_and_raises(name: str) -> None:
    assert missing_from(*core()[name]) == []


def test_the_async_client_has_the_methods_of_the_sync_one_with_docstrings() -> None:
    for name in (name.partition(".")[2] for name in core() if name.startswith("Once.")):
        assert inspect.getdoc(getattr(AsyncOnce, name)), name


def test_a_docstring_that_says_nothing_is_noticed() -> None:
    class Shop:
        def charge(self, cents: int) -> str:
            """Charge."""
            return str(cents)

    assert missing_from(Shop.charge, Shop) == ["cents", "what it returns", "what it raises"]
