"""Statements for the tests."""

from __future__ import annotations

from typing import Any
from uuid import NAMESPACE_URL, uuid5

VERBS = "http://adlnet.gov/expapi/verbs/"
JOHN = {"mbox": "mailto:john@example.com"}


def uuid(name: str) -> str:
    return str(uuid5(NAMESPACE_URL, name))


def statement(name: str = "s1", actor: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return a valid statement; its id is derived from the name."""
    return {
        "id": uuid(name),
        "actor": actor or JOHN,
        "verb": {"id": f"{VERBS}completed"},
        "object": {"id": "https://example.com/uvm-101"},
    } | more


def voiding(name: str, target: str) -> dict[str, Any]:
    reference = {"objectType": "StatementRef", "id": uuid(target)}
    return statement(name, verb={"id": f"{VERBS}voided"}, object=reference)
