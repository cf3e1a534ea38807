"""The page of the learning records: users with their sources, and the latest statements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final

import msgspec

from onceward.http.messages import Response
from onceward.warehouse import ComparesRows

SHOWN: Final = 100
"""Rows of each table."""

USERS: Final = f"""
SELECT user_id, name, sources, csv_data FROM users WHERE merged_into IS NULL ORDER BY user_id LIMIT {SHOWN}
"""
STATEMENTS: Final = f"""
SELECT statement_id, user_id, verb, object, statement FROM statements ORDER BY stored_us DESC LIMIT {SHOWN}
"""
COUNTS: Final = """
SELECT (SELECT count(*) FROM users WHERE merged_into IS NULL), (SELECT count(*) FROM statements)
"""
HEADERS: Final = (
    ("content-type", "text/html; charset=utf-8"),
    ("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    ("x-content-type-options", "nosniff"),
    ("cache-control", "no-store"),
)
STYLE: Final = "body{font:15px system-ui;margin:2em}td,th{text-align:left;padding:.2em 1em .2em 0;vertical-align:top}"


def render(house: ComparesRows) -> Response:
    """Return the page. Every value is escaped: statements and files come from outside."""
    [(users, statements)] = house.query(COUNTS)
    known = [
        (id, name or "", ", ".join(_decoded(sources)), "; ".join(map(_row, _decoded(rows))))
        for id, name, sources, rows in house.query(USERS)
    ]
    latest = [
        (*columns, msgspec.json.decode(statement)["timestamp"]) for *columns, statement in house.query(STATEMENTS)
    ]
    body = (
        f"<!doctype html><html lang=en><title>Learning records</title><style>{STYLE}</style><h1>Learning records</h1>"
        f"<h2>{users} users</h2>{_table(('User', 'Name', 'Sources', 'From files'), known)}"
        f"<h2>{statements} statements</h2>"
        f"{_table(('Statement', 'User', 'Verb', 'Object', 'At'), latest)}"
    )
    return Response(200, body.encode(), HEADERS)


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    cells = "".join(
        "<tr>" + "".join(f"<td>{escape('' if cell is None else str(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{''.join(f'<th>{name}</th>' for name in head)}</tr>{cells}</table>"


def _decoded(value: Any) -> list[Any]:
    """Return a JSON column, which some engines return as text."""
    found = msgspec.json.decode(value) if isinstance(value, str | bytes) else value
    return list(found or [])


def _row(row: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in row.items() if name not in ("email", "name"))
