"""Every field of public data has a sentence: below the field, or in the docstring of its class."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, is_typeddict

import pytest
from msgspec import Struct

from tests.docs.test_docstrings import explains, is_empty, is_ours, public_names

FEWEST_CLASSES = 60
"""The check must not pass because it finds nothing to check."""


def data_classes() -> dict[str, type]:
    """Return the public structs, dataclasses, named tuples, typed dicts and enums."""
    classes = (value for _, value in public_names() if inspect.isclass(value) and is_ours(value) and is_data(value))
    return {f"{cls.__module__}.{cls.__name__}": cls for cls in classes}


def is_data(cls: type) -> bool:
    return issubclass(cls, Struct | Enum) or is_dataclass(cls) or is_typeddict(cls) or is_named_tuple(cls)


def is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def fields_of(cls: type) -> list[str]:
    """Return the names of the public fields, with those of the bases. The fields of an enum are its members."""
    if issubclass(cls, Enum):
        return list(cls.__members__)
    names = [name for base in reversed(lineage(cls)) for name in vars(base).get("__annotations__", ())]
    return [name for name in dict.fromkeys(names) if not name.startswith("_")]


def lineage(cls: type) -> list[type]:
    """Return the class and its own bases. A typed dict forgets its bases at run time, except in `__orig_bases__`."""
    if is_typeddict(cls):
        bases = [base for base in getattr(cls, "__orig_bases__", ()) if is_typeddict(base)]
        return [cls, *(one for base in bases for one in lineage(base))]
    return [base for base in cls.__mro__ if base.__module__ == cls.__module__ or is_ours(base)]


def unexplained(cls: type) -> list[str]:
    """Return the fields without a sentence, and those whose sentence only repeats the name."""
    own = {name: said for base in reversed(lineage(cls)) for name, said in sentences(base)}
    text = "\n".join(inspect.getdoc(base) or "" for base in lineage(cls))
    return [name for name in fields_of(cls) if (is_empty(name, own[name]) if name in own else not explains(text, name))]


def sentences(cls: type) -> Iterator[tuple[str, str]]:
    """Yield the fields that have a docstring below them, with the docstring."""
    for field, below in pairwise(definition(cls).body):
        targets = [field.target] if isinstance(field, ast.AnnAssign) else getattr(field, "targets", [])
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                yield target.id, str(below.value.value)


def definition(cls: type) -> ast.ClassDef:
    """Return the source of the class. `Common` is renamed at run time, so the docstring identifies it too."""
    for node in module_classes(inspect.getsourcefile(inspect.getmodule(cls) or cls) or ""):
        if node.name == cls.__name__ or (cls.__doc__ and ast.get_docstring(node, clean=False) == cls.__doc__):
            return node
    raise LookupError(cls)


@cache
def module_classes(file: str) -> list[ast.ClassDef]:
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


@pytest.mark.finding("N59")
def test_every_field_of_public_data_has_a_sentence() -> None:
    gaps = {name: missing for name, cls in data_classes().items() if (missing := unexplained(cls))}
    assert not gaps, "\n".join(f"{name} does not explain: {', '.join(missing)}" for name, missing in gaps.items())


def test_most_data_classes_are_checked() -> None:
    found = data_classes()
    assert {"onceward.protocol.outcome.Executed", "onceward.sagas.journal.JournalEntry"} <= found.keys()
    assert {"onceward.sagas.api.SagaChoices", "onceward.protocol.record.RecordState"} <= found.keys()
    assert len(found) > FEWEST_CLASSES


class Price(Struct):
    """A price. `currency` is an ISO 4217 code."""

    currency: str
    cents: int
    """The amount without taxes, in hundredths."""
    taxes: int
    rebate: int
    """The rebate."""


class Discount(Price):
    """A price for a customer."""

    percent: int


class Colour(Enum):
    """A colour."""

    RED = "red"
    """For warnings."""
    BLUE = "blue"


class Point(NamedTuple):
    """A point. `x` is its distance from the left margin, in pixels."""

    x: int
    y: int


@pytest.mark.parametrize(
    ("cls", "missing"),
    [
        (Price, ["taxes", "rebate"]),
        (Discount, ["taxes", "rebate", "percent"]),
        (Colour, ["BLUE"]),
        (Point, ["y"]),
    ],
)
def test_a_field_without_a_sentence_is_reported(cls: Any, missing: list[str]) -> None:
    assert unexplained(cls) == missing
