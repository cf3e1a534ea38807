"""Statements that are not quite valid: any text as the id, and parts that are missing.

Some producers send them, and losing them would be worse than storing them as they are. Only the shape that the tables
need is checked. A statement that is valid except for its id is compared by the rules of the specification, any other by
its text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from examples.learning.xapi import Invalid, check, check_agent, digest, instant
from examples.learning.xapi.equality import SET_BY_SERVER

MAX_ID: Final = 500
"""Characters of an id."""


def check_leniently(statement: Any, version: str) -> str:
    """Return the digest of a statement. Raise `Invalid` if it cannot be stored at all."""
    if not isinstance(statement, dict):
        raise Invalid("a statement must be a JSON object")
    id = statement.get("id")
    if id is not None and not (isinstance(id, str) and 0 < len(id) <= MAX_ID and "\0" not in id):
        raise Invalid(f"the id must be a text of up to {MAX_ID} characters - at `$.id`")
    valid_otherwise = {name: value for name, value in statement.items() if name != "id"}
    try:
        check(valid_otherwise, version)
    except Invalid:
        _check_parts(statement)
        return _text_digest(statement)
    return digest(statement)


def _check_parts(statement: Mapping[str, Any]) -> None:
    check_agent(statement.get("actor"))
    for name in ("verb", "object", "context"):
        part = statement.get(name, {})
        if not isinstance(part, dict) or not isinstance(part.get("id", ""), str):
            raise Invalid(f"{name} must be a JSON object, and its id a text - at `$.{name}`")
    if not isinstance(statement.get("context", {}).get("registration", ""), str):
        raise Invalid("the registration must be a text - at `$.context.registration`")
    if "timestamp" in statement:
        try:
            instant(statement["timestamp"])
        except (ValueError, OverflowError, AttributeError, TypeError) as error:
            raise Invalid(f"{error} - at `$.timestamp`") from error
    if "\\u0000" in msgspec.json.encode(statement).decode():
        raise Invalid("it contains a NUL character, which no warehouse can store")


def _text_digest(statement: Mapping[str, Any]) -> str:
    kept = {name: value for name, value in statement.items() if name not in SET_BY_SERVER}
    return hashlib.sha256(msgspec.json.encode(kept, order="deterministic")).hexdigest()
