"""The tables of the learning records and the queries on them, the same for every warehouse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from examples.learning.xapi.agents import mailbox_sha1, sha1, written_sha1
from onceward.people import Field, FieldKind, kinds
from onceward.warehouse import Table

IDENTIFIERS: Final[Mapping[str, Field]] = {
    "email": Field(
        kinds.EMAIL,
        strong=True,
        implies={"mbox_sha1sum": mailbox_sha1},
        implies_as_written={"mbox_sha1sum": written_sha1},
    ),
    "mbox_sha1sum": Field(FieldKind("sha1 of a mailbox", sha1, role="key"), strong=True),
    "account": Field(kinds.EXTERNAL_ID, strong=True),
    "openid": Field(kinds.EXTERNAL_ID, strong=True),
}
"""Two users are one if they share an identifier. A shared name does not count."""

STATEMENTS: Final = Table(
    name="statements",
    columns={
        "statement_id": "text",
        "digest": "text",
        "given_at": "integer",  # the sender's timestamp in milliseconds; NULL matches any
        "actor": "text",
        "user_id": "text",
        "agents": "text",  # hashes of the other agents: the object, and the members of groups
        "verb": "text",
        "object": "text",
        "registration": "text",
        "voids": "text",
        "timestamp": "time",
        "stored": "time",
        "stored_us": "integer",  # the same in microseconds, because every engine compares numbers alike
        "teams": "json",
        "statement": "text",  # JSON, exactly as it is returned
    },
    key=("statement_id",),
    same_by=("digest", "given_at"),
)
USERS: Final = Table(
    name="users",
    columns={
        "user_id": "text",
        "email": "text",
        "name": "text",
        "sources": "json",
        "csv_data": "json",
        "first_seen": "time",
        "last_seen": "time",
        "merged_into": "text",  # the id of the user that this one was merged into; then the other columns are unused
    },
    key=("user_id",),
    on_match="replace",
)
USER_KEYS: Final = Table(name="user_keys", columns={"key": "text", "user_id": "text"}, key=("key",), on_match="replace")
"""All keys of all users, so that a statement finds its user by any identifier."""

ENRICHED: Final = """
SELECT s.statement_id, coalesce(k.user_id, s.user_id), s.verb, s.object, CAST(u.csv_data AS VARCHAR)
FROM statements s LEFT JOIN user_keys k ON k.key = s.actor LEFT JOIN users u ON u.user_id = k.user_id
ORDER BY s.statement_id
"""
"""Joins CSV data to statements, including those older than the file. (On BigQuery use TO_JSON_STRING for the CAST.)"""

LEARNERS: Final = """
SELECT u.user_id, u.name, count(s.statement_id),
    CAST(least(u.first_seen, min(s.timestamp)) AS VARCHAR), CAST(greatest(u.last_seen, max(s.timestamp)) AS VARCHAR)
FROM users u LEFT JOIN user_keys k ON k.user_id = u.user_id LEFT JOIN statements s ON s.actor = k.key
WHERE u.merged_into IS NULL GROUP BY u.user_id, u.name, u.first_seen, u.last_seen ORDER BY u.user_id
"""
"""When each user was first and last seen by any source."""

MERGED: Final = """
SELECT u.user_id, k.user_id FROM users u JOIN user_keys k ON k.key = u.user_id
WHERE k.user_id <> u.user_id AND k.user_id <> coalesce(u.merged_into, '')
UNION ALL SELECT u.user_id, k.user_id FROM users u JOIN user_keys k ON k.key = 'email:' || u.user_id
WHERE k.user_id <> u.user_id AND k.user_id <> coalesce(u.merged_into, '')
"""
"""Users whose own key now belongs to another user: the old and the new id."""

VOIDED: Final = "(s.voids IS NULL AND EXISTS (SELECT 1 FROM statements v WHERE v.voids = s.statement_id))"
"""True if a statement, older or newer, voids this one. A voiding statement cannot be voided itself."""

ONE: Final = f"SELECT s.statement FROM statements s WHERE s.statement_id = ? AND {VOIDED} = ?"
