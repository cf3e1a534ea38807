"""Translate PostgreSQL's errors into ours, with a hint: wait, free disk space, or repair."""

from __future__ import annotations

import re
from typing import Final

from onceward.errors import StoreBroken, StoreError, StoreFull, StoreNotSetUp, StoreUnavailable
from onceward.protocol.hints import migrate_hint

Meaning = tuple[type[StoreError], str, str]

RETRYABLE: Final = frozenset({"40001", "40P01", "55P03"})
"""Serialization failure, deadlock, lock not available: the statement had no effect, and may be repeated."""

UNPREPARED: Final = frozenset({"26000", "42P05"})
"""A prepared statement is missing or already exists: there is a pooler between us and the server."""

FOR_WRITING: Final = "connect to the primary (target_session_attrs=read-write), and begin a read-write transaction"
MIGRATE: Final = "migrate"
"""Stands for the command that migrates the store."""

GRANT: Final = (
    "to create the tables, grant it CREATE on the schema, or let an administrator run the script of "
    "`onceward migrate --sql`; to use them, grant it SELECT, INSERT, UPDATE and DELETE on the tables onceward_*, "
    "and USAGE on their schema"
)

MEANINGS: Final[dict[str, Meaning]] = {
    "42P01": (StoreNotSetUp, "Onceward's tables do not exist", MIGRATE),
    "42703": (StoreNotSetUp, "Onceward's tables are older than this version of Onceward", MIGRATE),
    "3F000": (StoreNotSetUp, "the schema does not exist", "create it, or name another one with ?schema="),
    "42501": (StoreNotSetUp, "this user lacks a privilege", GRANT),
    "53100": (StoreFull, "the server's disk is full; nothing was written", "free disk space, or purge"),
    "53300": (StoreUnavailable, "the server has no connection left", "raise max_connections, or use a pooler"),
    "57014": (StoreUnavailable, "the statement was cancelled", "the call may be repeated"),
    "25006": (StoreUnavailable, "this server or this transaction is read-only", FOR_WRITING),
    "25P02": (StoreUnavailable, "an earlier error has aborted this transaction", "roll it back"),
}
FAMILIES: Final[dict[str, Meaning]] = {
    "08": (StoreUnavailable, "the connection broke", "the call may be repeated"),
    "40": (StoreUnavailable, "other transactions kept conflicting with this call", "the call may be repeated"),
    "53": (StoreUnavailable, "the server lacks resources", "check the server's log"),
    "55": (StoreUnavailable, "another transaction held a lock until this call timed out", "keep transactions short"),
    "57": (StoreUnavailable, "the server is shutting down or starting", "the call may be repeated"),
    "XX": (StoreBroken, "the server found damaged data", "check the server's log; restore from a backup"),
    "42": (StoreNotSetUp, "Onceward's tables do not have the expected schema", MIGRATE),
    "23": (StoreBroken, "Onceward's tables do not have the expected schema", "were they edited by hand?"),
}
UNEXPECTED: Final[Meaning] = (
    StoreUnavailable,
    "PostgreSQL raised an unexpected error",
    "see PostgreSQL's message",
)


CHECK_URL: Final = "is the URL correct?"
CONNECT_ERRORS: Final[tuple[tuple[str, str, str], ...]] = (
    (r'database ".*" does not exist|no such database', "the database does not exist", f"create it; {CHECK_URL}"),
    (
        r'role ".*" does not exist|no such user|authentication failed|no password supplied|not permitted to log in',
        "the user name or password is wrong",
        "correct them in the URL: postgresql://user:password@host/database (in a password, write %40 for @)",
    ),
    (
        r"no pg_hba\.conf entry|permission denied for database",
        "the server does not let this user connect",
        f"grant it CONNECT, and check pg_hba.conf; {CHECK_URL}",
    ),
    (
        r"invalid .*value|does not support SSL|definition of service",
        "the URL has settings that do not work",
        "correct the settings in the URL",
    ),
)
"""Patterns of connection errors. libpq gives no code before it is connected, only the message, matched in English."""


class PostgresRefused(Exception):
    """The server answered with an error; the connection is still usable."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code


def explain(error: PostgresRefused, name: str) -> StoreError:
    """Return the Onceward error for a PostgreSQL error, to be raised `from` it."""
    error_class, message, hint = MEANINGS.get(error.code) or FAMILIES.get(error.code[:2]) or UNEXPECTED
    return error_class(f"{name}: {message} ({error})", hint=migrate_hint(name) if hint is MIGRATE else hint)


def explain_connect_error(error: StoreUnavailable, name: str) -> StoreError:
    """Return why the very first connection failed: a server that answers with a refusal is not down."""
    text = str(error).partition(" →")[0]
    for pattern, message, hint in CONNECT_ERRORS:
        if re.search(pattern, text):
            return StoreNotSetUp(f"{name}: {message} ({text.removeprefix(f'{name}: ')})", hint=hint)
    return error
