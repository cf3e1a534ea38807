"""Which statements are asked for, by the filters of the specification, as one question to the warehouse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

import msgspec
from msgspec import Struct

from examples.learning.tables import VOIDED
from examples.learning.xapi import Invalid, check_agent, hashed, identifier, instant, microseconds
from examples.learning.xapi.parts import Iri, Uuid
from onceward.warehouse import ComparesRows

MOST = 200
"""Statements in one answer; `more` leads to the others."""

ONLY = {"format": "exact", "attachments": "false", "related_agents": "false", "related_activities": "false"}
"""Parameters that may say nothing else here."""

PLAIN = {"verb": ("s.verb = ?", Iri), "activity": ("s.object = ?", Iri), "registration": ("s.registration = ?", Uuid)}
TIMES = {"since": "s.stored_us > ?", "until": "s.stored_us <= ?"}
NAMES = {*ONLY, *PLAIN, *TIMES, "agent", "limit", "ascending", "after"}


class Search(Struct, frozen=True):
    """Conditions and their values; all of them hold."""

    where: tuple[str, ...]
    values: tuple[str | int, ...]
    limit: int
    ascending: bool

    @classmethod
    def of(cls, asked: Mapping[str, str]) -> Self:
        """Raises `Invalid` for what cannot be asked here."""
        for name, value in asked.items():
            if name not in NAMES or value != ONLY.get(name, value):
                raise Invalid(f"{name}={value} is not answered here")
        ascending = asked.get("ascending", "false")
        limit = asked.get("limit", "0")
        if ascending not in ("true", "false") or not (limit.isascii() and limit.isdigit() and len(limit) < 10):
            raise Invalid(f"ascending={ascending} and limit={limit} cannot be followed")
        found = list(_conditions(asked, ">" if ascending == "true" else "<"))
        values = tuple(value for _, some in found for value in some)
        return cls(tuple(one for one, _ in found), values, min(int(limit) or MOST, MOST), ascending == "true")

    def statements(self, house: ComparesRows) -> tuple[list[dict[str, Any]], str]:
        """A page, and where it ended if there is more."""
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


def _conditions(asked: Mapping[str, str], beyond: str) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    try:
        for name, (condition, kind) in PLAIN.items():
            if name in asked:
                value: str = msgspec.convert(asked[name], kind)
                yield condition, (value.lower() if kind is Uuid else value,)
        for name, condition in TIMES.items():
            if name in asked:
                yield condition, (_place(asked[name]),)
        if "agent" in asked:
            agent = msgspec.json.decode(asked["agent"])
            check_agent(agent)
            user = identifier(agent)
            key = "" if user is None else user.key
            yield "(s.actor = ? OR s.agents LIKE ?)", (key, f"%{hashed(key)}%")
        if "after" in asked:
            at, _, last = asked["after"].partition(" ")
            place = _place(at)
            yield f"(s.stored_us {beyond} ? OR (s.stored_us = ? AND s.statement_id {beyond} ?))", (place, place, last)
    except (ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise Invalid(f"the query cannot be read: {error}") from error


def _place(text: str) -> int:
    return microseconds(instant(text, exactly=True))
