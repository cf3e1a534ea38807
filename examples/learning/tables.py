"""The tables of the learning records, and the questions that are asked about them. On every warehouse the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from examples.learning.xapi.agents import sha1, sha1_of
from onceward.people import Field, FieldKind, kinds
from onceward.warehouse import Table

IDENTIFIERS: Final[Mapping[str, Field]] = {
    "email": Field(kinds.EMAIL, strong=True, implies={"mbox_sha1sum": sha1_of}),
    "mbox_sha1sum": Field(FieldKind("sha1 of a mailbox", sha1, role="key"), strong=True),
    "account": Field(kinds.EXTERNAL_ID, strong=True),
    "openid": Field(kinds.EXTERNAL_ID, strong=True),
}
"""What makes two users one: nothing but identifiers. Two people of one name are two."""

STATEMENTS: Final = Table(
    name="statements",
    columns={
        "statement_id": "text",
        "digest": "text",
        "given_at": "integer",  # milliseconds of the timestamp that the sender gave; without one, any agrees
        "actor": "text",
        "user_id": "text",
        "agents": "text",  # hashes of all others that it is about: an agent as its object, the members of groups
        "verb": "text",
        "object": "text",
        "registration": "text",
        "voids": "text",
        "at": "time",
        "stored": "time",
        "stored_us": "integer",  # the same in microseconds: every engine compares numbers in the same words
        "teams": "json",
        "statement": "text",  # JSON, to the letter as it is handed out again
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
        "merged_into": "text",  # another user's id, if they turned out to be one: then this row says nothing else
    },
    key=("user_id",),
    on_match="replace",
)
USER_KEYS: Final = Table(name="user_keys", columns={"key": "text", "user_id": "text"}, key=("key",), on_match="replace")
"""All that leads to a user, so that statements find theirs under whichever identifier they came."""

ENRICHED: Final = """
SELECT s.statement_id, coalesce(k.user_id, s.user_id), s.verb, s.object, CAST(u.csv_data AS VARCHAR)
FROM statements s LEFT JOIN user_keys k ON k.key = s.actor LEFT JOIN users u ON u.user_id = k.user_id
ORDER BY s.statement_id
"""
"""CSV data enriches statements, also those that came before the file. (On BigQuery: TO_JSON_STRING for the CAST.)"""

LEARNERS: Final = """
SELECT u.user_id, u.name, count(s.statement_id),
    CAST(least(u.first_seen, min(s.at)) AS VARCHAR), CAST(greatest(u.last_seen, max(s.at)) AS VARCHAR)
FROM users u LEFT JOIN user_keys k ON k.user_id = u.user_id LEFT JOIN statements s ON s.actor = k.key
WHERE u.merged_into IS NULL GROUP BY u.user_id, u.name, u.first_seen, u.last_seen ORDER BY u.user_id
"""
"""First and last seen, by any source."""

MERGED: Final = """
SELECT u.user_id, k.user_id FROM users u JOIN user_keys k ON k.key = u.user_id
WHERE k.user_id <> u.user_id AND k.user_id <> coalesce(u.merged_into, '')
UNION ALL SELECT u.user_id, k.user_id FROM users u JOIN user_keys k ON k.key = 'email:' || u.user_id
WHERE k.user_id <> u.user_id AND k.user_id <> coalesce(u.merged_into, '')
"""
"""Users whose own key leads to another one by now: who they were, and who they are."""

VOIDED: Final = "(s.voids IS NULL AND EXISTS (SELECT 1 FROM statements v WHERE v.voids = s.statement_id))"
"""By a statement that may have come before or after it. What voids another cannot be voided itself."""

ONE: Final = f"SELECT s.statement FROM statements s WHERE s.statement_id = ? AND {VOIDED} = ?"
