"""The tables of the system and all statements on them, for both SQLite and PostgreSQL.

Every write is idempotent: repeating it changes no column. Times are stored as text in UTC, which sorts by time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

TABLES: Final = (
    """
CREATE TABLE IF NOT EXISTS prospects (
    id TEXT PRIMARY KEY, name TEXT, email TEXT, city TEXT, country TEXT, website TEXT, contact_email TEXT,
    updated_at TEXT NOT NULL, replies INTEGER NOT NULL DEFAULT 0)""",
    "CREATE UNIQUE INDEX IF NOT EXISTS idx_prospects_email ON prospects (email) WHERE email IS NOT NULL",
    """
CREATE TABLE IF NOT EXISTS emails (
    id TEXT PRIMARY KEY, prospect_id TEXT, direction TEXT NOT NULL, message_id TEXT, sent_at TEXT NOT NULL,
    CHECK (direction IN ('outbound', 'inbound')))""",
    "CREATE UNIQUE INDEX IF NOT EXISTS idx_emails_message_id ON emails (message_id) WHERE message_id IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS idx_emails_prospect ON emails (prospect_id, sent_at)",
    """
CREATE TABLE IF NOT EXISTS enrichments (
    prospect_id TEXT, type TEXT, token BIGINT, started_at TEXT NOT NULL, ended_at TEXT, found TEXT,
    PRIMARY KEY (prospect_id, type, token))""",
    """
CREATE TABLE IF NOT EXISTS runs (
    pattern TEXT, scheduled_at TEXT, ended_at TEXT NOT NULL, sent INTEGER NOT NULL,
    PRIMARY KEY (pattern, scheduled_at))""",
)
"""`enrichments` has a row per attempt, `runs` a row per cron run; `replies` counts the processed replies."""

TABLES_EXIST: Final = "SELECT 1 FROM runs LIMIT 1"
"""Fails if not all tables exist: this one is created last."""

ENRICHMENT_COLUMNS: Final = {"website": "website", "email": "contact_email"}
"""The column of `prospects` for each type of enrichment."""

# ── writes; the values of each INSERT are the columns of its table, in order ──

UPSERT_PROSPECT: Final = """
INSERT INTO prospects (id, name, email, city, country, website, contact_email, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET name = excluded.name, email = excluded.email, city = excluded.city,
country = excluded.country, website = COALESCE(prospects.website, excluded.website),
contact_email = COALESCE(prospects.contact_email, excluded.contact_email), updated_at = excluded.updated_at
WHERE excluded.updated_at >= prospects.updated_at"""
"""If two workers publish a person, the later version wins, whichever is written last."""

INSERT_EMAIL: Final = "INSERT INTO emails VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id"
COUNT_REPLY: Final = "UPDATE prospects SET replies = replies + 1 WHERE id = ?"
INSERT_ATTEMPT: Final = "INSERT INTO enrichments VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
END_ATTEMPT: Final = "UPDATE enrichments SET ended_at = ?, found = ? WHERE prospect_id = ? AND type = ? AND token = ?"
SET_ENRICHMENT: Final = "UPDATE prospects SET {0} = ? WHERE id = ? AND {0} IS NULL"
INSERT_RUN: Final = "INSERT INTO runs VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
MOVE_ROWS: Final = (
    "UPDATE emails SET prospect_id = ? WHERE prospect_id = ?",
    "UPDATE enrichments SET prospect_id = ? WHERE prospect_id = ?",
)
DELETE_PROSPECT: Final = "DELETE FROM prospects WHERE id = ?"
RECOUNT_REPLIES: Final = """
UPDATE prospects SET replies = (SELECT count(*) FROM emails WHERE prospect_id = prospects.id AND direction = 'inbound')
WHERE id = ?"""
"""For two prospects that are merged into one: recount the replies after moving the rows."""

# ── queries ──

SELECT_ADDRESS: Final = "SELECT COALESCE(contact_email, email), name FROM prospects WHERE id = ?"
SELECT_ENRICHMENT: Final = "SELECT {0} FROM prospects WHERE id = ?"
SELECT_RECENT_EMAIL: Final = (
    "SELECT 1 FROM emails WHERE prospect_id = ? AND direction = 'outbound' AND sent_at > ? LIMIT 1"
)
SELECT_DUE: Final = """
SELECT id FROM prospects AS p WHERE COALESCE(contact_email, email) IS NOT NULL AND NOT EXISTS (
SELECT 1 FROM emails WHERE prospect_id = p.id AND direction = 'outbound' AND sent_at > ?) ORDER BY id"""
SELECT_RECIPIENT: Final = "SELECT prospect_id FROM emails WHERE message_id = ? AND direction = 'outbound'"
SELECT_BY_ADDRESS: Final = "SELECT id FROM prospects WHERE email = ? OR contact_email = ? ORDER BY id LIMIT 1"
SELECT_IDS: Final = "SELECT id FROM prospects"

DAY: Final = timedelta(hours=24)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def datetime_of(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def format_time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds")
