"""What the listings of SQL stores share: the conditions of a filter, and how the pages of several states are merged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from onceward.errors import ConfigurationError
from onceward.protocol.listing import ListingFilter, ListingPage
from onceward.protocol.note import SAGA
from onceward.protocol.record import RecordState
from onceward.stores.sql import Row, records_from_rows

MAX_VISITED: Final = 20_000
"""Records that one page visits at most: some ten milliseconds, and never a full scan."""

Position = tuple[int, Any]
"""Where a record is in a listing: its token, and its row id or id."""

Condition = tuple[str, Sequence[Any]]
"""A condition with a `{}` for each of its values."""


def filter_conditions(wanted: ListingFilter, find: str, hex_id: str) -> list[Condition]:
    """Return the conditions except those about state and time. `find` is the SQL function that finds a text in another.

    A condition may select too much: `ListingFilter.matches` decides again.
    """
    conditions: list[Condition] = []
    if wanted.scopes:
        parts, values = zip(*map(_scope_condition, wanted.scopes), strict=True)
        conditions.append((f"({' OR '.join(parts)})", [value for some in values for value in some]))
    if wanted.tenants:
        parts, values = zip(*(_tenant_condition(tenant, find) for tenant in wanted.tenants), strict=True)
        conditions.append((f"({' OR '.join(parts)})", [value for some in values for value in some]))
    if wanted.prefix:
        conditions.append((f"substr(key, 1, {len(wanted.prefix):d}) = {{}}", [wanted.prefix]))
    if wanted.id:
        conditions.append((f"substr({hex_id}, 1, {len(wanted.id):d}) = {{}}", [wanted.id.lower()]))
    if wanted.error_type:
        conditions.append(("error_type = {}", [wanted.error_type]))
    if wanted.note:
        text = json.dumps(wanted.note.rpartition("=")[2], ensure_ascii=False)[1:-1]
        conditions.append((f"{find}(note, {{}}) > 0", [text]))
    if wanted.sagas:
        conditions.append((f"{find}(note, {{}}) > 0", [f'"{SAGA}":"']))
    return conditions


def _scope_condition(scope: str) -> Condition:
    if "@" in scope:
        return "scope = {}", [scope]
    return "scope = {} OR scope >= {} AND scope < {}", [scope, f"{scope}@", f"{scope}A"]  # A follows @


def _tenant_condition(tenant: str, find: str) -> Condition:
    if not tenant:
        return f"{find}(scope, '@') = 0", []
    return f"substr(scope, {find}(scope, '@')) = {{}}", [f"@{tenant}"]


def searched_states(wanted: ListingFilter) -> tuple[RecordState | None, ...]:
    """Return the states to search one by one in the index of unfinished records; (None,) to search all records."""
    return tuple(dict.fromkeys(wanted.states)) if wanted.only_unfinished else (None,)


class FoundRows(NamedTuple):
    """What one search found, newest first. `end` is where it stopped before it had visited all; None if it did not."""

    rows: list[tuple[Position, Row]]
    end: Position | None
    end_token: int | None


def merged_page(found: Sequence[FoundRows], wanted: ListingFilter, limit: int, now: int) -> ListingPage:
    """Return one page of several searches. No record is left out: the page ends where the first search stopped."""
    stops = [one.end for one in found if one.end is not None]
    stop = max(stops) if stops else None
    rows = sorted((row for one in found for row in one.rows), key=lambda row: row[0], reverse=True)
    complete = [row for row in rows if stop is None or row[0] >= stop]
    more = len(complete) > limit
    chosen = complete[:limit]
    position = chosen[-1][0] if more else stop
    tokens = [one.end_token for one in found if one.end is not None and one.end_token is not None]
    records, unreadable = records_from_rows(row for _, row in chosen)
    return ListingPage(
        [record for record in records if wanted.matches(record)],
        None if position is None else encode_position(position),
        now,
        max(tokens) if tokens and not more else None,
        unreadable,
    )


encode_position = msgspec.msgpack.Encoder().encode


def decode_position(cursor: bytes, kind: Any) -> Position:
    """Return the position of a cursor; raise ConfigurationError if it is not one of this store."""
    try:
        position: Position = msgspec.msgpack.decode(cursor, type=kind)
    except msgspec.MsgspecError as error:
        raise ConfigurationError("this is not a cursor of this store", hint="start with the first page") from error
    return position
