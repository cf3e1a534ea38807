"""Every option is documented: in the docstring of its callable or class, or as code in the README or in docs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

import click
import pytest

from onceward.cli.program import load_commands, program
from onceward.cli.settings import DEFAULTS, VARIABLES
from onceward.http.config import IdempotencyOptions
from onceward.observe.thresholds import Thresholds
from onceward.operations.table import OperationFields
from onceward.protocol.latest import LatestStateOptions
from onceward.protocol.policy import Defaults
from onceward.sagas import SagaChoices
from onceward.schedules.definition import SlotChoices
from onceward.stores.firestore import address as firestore
from onceward.stores.postgres import url as postgres
from onceward.stores.redis import address as redis
from onceward.stores.sqlite import url as sqlite
from onceward.warehouse import bigquery_url, duck_url
from tests.docs.pages import pages
from tests.public_api import MODULES, names_of

CODE = re.compile(r"```.*?```|`[^`]+`", re.DOTALL)
PAGES = "\n".join(code for page in pages() for code in CODE.findall(page.read_text(encoding="utf-8")))

OPTIONS: dict[str, Iterable[str]] = {
    "policies": Defaults.__annotations__,
    "operations": OperationFields.__annotations__,
    "sagas": SagaChoices.__annotations__,
    "schedules": SlotChoices.__annotations__,
    "latest states": LatestStateOptions.__annotations__,
    "idempotent routes": IdempotencyOptions.__annotations__,
    "settings": [*DEFAULTS, *VARIABLES.values()],
    "rules": Thresholds.__struct_fields__,
    "PostgreSQL's URL": postgres.OWN_SETTINGS,
    "SQLite's URL": sqlite.SETTINGS,
    "Redis's URL": redis.OWN_SETTINGS,
    "Firestore's URL": firestore.SETTINGS,
    "URLs of warehouses": [*bigquery_url.SETTINGS, *duck_url.SETTINGS],
}


def unnamed(options: Iterable[str], *texts: str | None) -> list[str]:
    documented = "\n".join(text or "" for text in (PAGES, *texts))
    return [name for name in options if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", documented)]


def undocumented(function: Any, *owners: type) -> list[str]:
    """Return the parameters with a default that are named by no page, and in no docstring of function and classes."""
    optional = [one.name for one in inspect.signature(function).parameters.values() if one.default is not one.empty]
    return unnamed(optional, *(inspect.getdoc(one) for one in (function, *owners)))


def public_functions() -> Iterator[tuple[str, Any, tuple[type, ...]]]:
    """Yield the name, the function, and the classes that it belongs to. Records have no options, only fields."""
    for module in map(import_module, MODULES):
        for name in names_of(module):
            value = getattr(module, name)
            if inspect.isfunction(value):
                yield f"{module.__name__}.{name}", value, ()
            elif inspect.isclass(value):
                ours = tuple(base for base in value.__mro__ if base.__module__.startswith("onceward."))
                for method, function in {key: one for base in ours for key, one in vars(base).items()}.items():
                    if inspect.isfunction(function) and (method in ("__init__", "__call__") or method[0] != "_"):
                        yield f"{module.__name__}.{name}.{method}", getattr(value, method), ours


def test_every_optional_parameter_is_documented() -> None:
    found = {name: missing for name, one, owners in public_functions() if (missing := undocumented(one, *owners))}
    assert not found, "name them in the docstring, and on the page in docs"


@pytest.mark.parametrize("kind", OPTIONS)
def test_every_option_is_on_a_page(kind: str) -> None:
    assert unnamed(OPTIONS[kind]) == []


def test_every_flag_is_on_a_page() -> None:
    load_commands()
    commands: list[click.Command] = [program, *program.commands.values()]
    flags = [one.opts[-1] for command in commands for one in command.params if isinstance(one, click.Option)]
    assert "--store" in flags
    assert unnamed(flags) == []


def test_a_made_up_option_is_found() -> None:
    def shop(*, lease: str = "1m", made_up_option: int = 0) -> None:
        """`lease` is documented."""

    assert undocumented(shop) == ["made_up_option"]
    assert unnamed(["--store", "--made-up"]) == ["--made-up"]
