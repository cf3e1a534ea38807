"""What PostgreSQL's errors mean to somebody who only wants to know whether to wait, make room or call for help."""

from __future__ import annotations

import re
from typing import Final

from onceward.errors import StoreBroken, StoreError, StoreFull, StoreNotSetUp, StoreUnavailable

Meaning = tuple[type[StoreError], str, str]

RETRIED: Final = frozenset({"40001", "40P01", "55P03"})
"""Serialization failure, deadlock, lock not available: what was asked for did not happen, and may be asked again."""

UNPREPARED: Final = frozenset({"26000", "42P05"})
"""A prepared statement is not where we left it, or one is there already: a pooler stands between us and the server."""

FOR_WRITING: Final = "connect to the primary (target_session_attrs=read-write), and begin a transaction that may write"
MEANINGS: Final[dict[str, Meaning]] = {
    "42P01": (StoreNotSetUp, "the tables of Onceward are not there", "run `onceward migrate`"),
    "42703": (StoreNotSetUp, "the tables of Onceward are older than this Onceward", "run `onceward migrate`"),
    "3F000": (StoreNotSetUp, "the schema does not exist", "create it, or name another by ?schema="),
    "42501": (StoreNotSetUp, "this user may not do that", "grant it what Onceward needs on its own tables"),
    "53100": (StoreFull, "there is no room on the server's disk; nothing was written", "make room, or purge"),
    "53300": (StoreUnavailable, "the server has no connection left", "raise max_connections, or use a pooler"),
    "57014": (StoreUnavailable, "the statement was cancelled", "the call may be repeated"),
    "25006": (StoreUnavailable, "this server only reads, or this transaction", FOR_WRITING),
    "25P02": (StoreUnavailable, "an earlier error has spoilt this transaction", "roll it back"),
}
FAMILIES: Final[dict[str, Meaning]] = {
    "08": (StoreUnavailable, "the connection broke", "the call may be repeated"),
    "40": (StoreUnavailable, "somebody else was faster, again and again", "the call may be repeated"),
    "53": (StoreUnavailable, "the server lacks resources", "look into its log"),
    "55": (StoreUnavailable, "somebody holds it for longer than this call may wait", "keep transactions short"),
    "57": (StoreUnavailable, "the server is shutting down or starting", "the call may be repeated"),
    "XX": (StoreBroken, "the server found something damaged", "look into its log; restore from a backup"),
    "42": (StoreNotSetUp, "the tables of Onceward are not what they should be", "run `onceward migrate`"),
    "23": (StoreBroken, "the tables of Onceward are not what they should be", "were they edited by hand?"),
}
UNEXPECTED: Final[Meaning] = (StoreUnavailable, "PostgreSQL refused", "look at its message")


URL_RIGHT: Final = "is the URL right?"
AT_THE_DOOR: Final[tuple[tuple[str, str, str], ...]] = (
    (r'database ".*" does not exist|no such database', "there is no such database", f"create it; {URL_RIGHT}"),
    (
        r'role ".*" does not exist|no such user|authentication failed|no password supplied|not permitted to log in',
        "user name or password is wrong",
        URL_RIGHT,
    ),
    (
        r"no pg_hba\.conf entry|permission denied for database",
        "the server does not let this user in",
        f"grant it CONNECT, and look into pg_hba.conf; {URL_RIGHT}",
    ),
    (r"invalid .*value|does not support SSL|definition of service", "this URL cannot work", "change what it names"),
)
"""Before a connection stands, libpq tells no code, only the server's words, which we know in English."""


class PostgresRefused(Exception):
    """The server answered with an error; the connection is fine."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code


def explain(error: PostgresRefused, name: str) -> StoreError:
    """A fresh error of ours, to be raised `from` the server's."""
    kind, what, cure = MEANINGS.get(error.code) or FAMILIES.get(error.code[:2]) or UNEXPECTED
    return kind(f"{name}: {what} ({error})", hint=cure)


def at_the_door(error: StoreUnavailable, name: str) -> StoreError:
    """Why the very first connection failed: a server that answers and refuses is not down."""
    text = str(error).partition(" →")[0]
    for words, what, cure in AT_THE_DOOR:
        if re.search(words, text):
            return StoreNotSetUp(f"{name}: {what} ({text.removeprefix(f'{name}: ')})", hint=cure)
    return error
