"""Translates the statement filters of the specification into one query to the warehouse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

import msgspec
from msgspec import Struct

from examples.learning.tables import VOIDED
from examples.learning.xapi import Invalid, check_agent, hash_key, identifier, instant, microseconds
from examples.learning.xapi.parts import Iri, Uuid
from onceward.warehouse import ComparesRows

MAX_PAGE = 200
"""Statements per page; `more` links to the next one."""

FIXED_PARAMETERS = {"format": "exact", "attachments": "false", "related_agents": "false", "related_activities": "false"}
"""Parameters that support only this value."""

FILTERS = {"verb": ("s.verb = ?", Iri), "activity": ("s.object = ?", Iri), "registration": ("s.registration = ?", Uuid)}
TIME_FILTERS = {"since": "s.stored_us > ?", "until": "s.stored_us <= ?"}
PARAMETERS = {*FIXED_PARAMETERS, *FILTERS, *TIME_FILTERS, "agent", "limit", "ascending", "after"}


class Search(Struct, frozen=True):
    """A conjunction of conditions and their values."""

    where: tuple[str, ...]
    values: tuple[str | int, ...]
    limit: int
    ascending: bool

    @classmethod
    def parse(cls, parameters: Mapping[str, str]) -> Self:
        """Parse query parameters. Raise `Invalid` for those that are not supported."""
        for name, value in parameters.items():
            if name not in PARAMETERS or value != FIXED_PARAMETERS.get(name, value):
                raise Invalid(f"{name}={value} is not supported")
        ascending = parameters.get("ascending", "false")
        limit = parameters.get("limit", "0")
        if ascending not in ("true", "false") or not (limit.isascii() and limit.isdigit() and len(limit) < 10):
            raise Invalid(f"ascending={ascending} or limit={limit} is not valid")
        found = list(_conditions(parameters, ">" if ascending == "true" else "<"))
        values = tuple(value for _, some in found for value in some)
        return cls(tuple(one for one, _ in found), values, min(int(limit) or MAX_PAGE, MAX_PAGE), ascending == "true")

    def statements(self, house: ComparesRows) -> tuple[list[dict[str, Any]], str]:
        """Return a page, and the position to continue after if there is more."""
        order = "ASC" if self.ascending else "DESC"
        where = " AND ".join((f"NOT {VOIDED}", *self.where))
        rows = house.query(
            f"SELECT s.statement FROM statements s WHERE {where}"
            f" ORDER BY s.stored_us {order}, s.statement_id {order} LIMIT {self.limit + 1}",
            self.values,
        )
        found = [msgspec.json.decode(text) for (text,) in rows]
        page = found[: self.limit]
        return page, f"{page[-1]['stored']} {page[-1]['id']}" if len(found) > self.limit else ""


def _conditions(parameters: Mapping[str, str], comparison: str) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    try:
        for name, (condition, kind) in FILTERS.items():
            if name in parameters:
                value: str = msgspec.convert(parameters[name], kind)
                yield condition, (value.lower() if kind is Uuid else value,)
        for name, condition in TIME_FILTERS.items():
            if name in parameters:
                yield condition, (_stored_us(parameters[name]),)
        if "agent" in parameters:
            agent = msgspec.json.decode(parameters["agent"])
            check_agent(agent)
            user = identifier(agent)
            key = "" if user is None else user.key
            yield "(s.actor = ? OR s.agents LIKE ?)", (key, f"%{hash_key(key)}%")
        if "after" in parameters:
            at, _, last = parameters["after"].partition(" ")
            after_us = _stored_us(at)
            yield (
                f"(s.stored_us {comparison} ? OR (s.stored_us = ? AND s.statement_id {comparison} ?))",
                (after_us, after_us, last),
            )
    except (ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise Invalid(f"the query cannot be parsed: {error}") from error


def _stored_us(text: str) -> int:
    return microseconds(instant(text, exactly=True))
