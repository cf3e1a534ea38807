"""The tables of the system and every write to them, for SQLite and PostgreSQL alike.

Each write may be repeated: the second time it changes no column. Times are texts, in UTC, that sort as they are.
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
"""`enrichments` has a row an attempt, `runs` one a run of cron, `replies` is how many replies were processed."""

THERE: Final = "SELECT 1 FROM runs LIMIT 1"
"""An error if the tables are not all there: this is the last one."""

ENRICHED: Final = {"website": "website", "email": "contact_email"}
"""Where the data of each type of enrichment is kept."""

# ── writes; the values of each INSERT are the columns of its table, from the left ──

PROSPECT: Final = """
INSERT INTO prospects (id, name, email, city, country, website, contact_email, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET name = excluded.name, email = excluded.email, city = excluded.city,
country = excluded.country, website = COALESCE(prospects.website, excluded.website),
contact_email = COALESCE(prospects.contact_email, excluded.contact_email), updated_at = excluded.updated_at
WHERE excluded.updated_at >= prospects.updated_at"""
"""Of two who publish a person, the one with the newer version has the last word, whoever comes last."""

EMAIL: Final = "INSERT INTO emails VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id"
REPLIED: Final = "UPDATE prospects SET replies = replies + 1 WHERE id = ?"
ATTEMPT: Final = "INSERT INTO enrichments VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
ATTEMPTED: Final = "UPDATE enrichments SET ended_at = ?, found = ? WHERE prospect_id = ? AND type = ? AND token = ?"
FOUND: Final = "UPDATE prospects SET {0} = ? WHERE id = ? AND {0} IS NULL"
RUN: Final = "INSERT INTO runs VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
MOVED: Final = (
    "UPDATE emails SET prospect_id = ? WHERE prospect_id = ?",
    "UPDATE enrichments SET prospect_id = ? WHERE prospect_id = ?",
)
DROPPED: Final = "DELETE FROM prospects WHERE id = ?"
RECOUNTED: Final = """
UPDATE prospects SET replies = (SELECT count(*) FROM emails WHERE prospect_id = prospects.id AND direction = 'inbound')
WHERE id = ?"""
"""Of two prospects that turned out to be one: what was of the one is the other's."""

# ── questions ──

ADDRESS: Final = "SELECT COALESCE(contact_email, email), name FROM prospects WHERE id = ?"
KNOWN: Final = "SELECT {0} FROM prospects WHERE id = ?"
EMAILED: Final = "SELECT 1 FROM emails WHERE prospect_id = ? AND direction = 'outbound' AND sent_at > ? LIMIT 1"
DUE: Final = """
SELECT id FROM prospects AS p WHERE COALESCE(contact_email, email) IS NOT NULL AND NOT EXISTS (
SELECT 1 FROM emails WHERE prospect_id = p.id AND direction = 'outbound' AND sent_at > ?) ORDER BY id"""
WROTE: Final = "SELECT prospect_id FROM emails WHERE message_id = ? AND direction = 'outbound'"
OWNER: Final = "SELECT id FROM prospects WHERE email = ? OR contact_email = ? ORDER BY id LIMIT 1"
PUBLISHED: Final = "SELECT id FROM prospects"

DAY: Final = timedelta(hours=24)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def moment(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def text_of(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds")
