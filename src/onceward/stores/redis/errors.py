"""Translate Redis errors and lost connections into Onceward errors that say whether to retry or what to fix."""

from __future__ import annotations

from typing import Final

import redis
from redis import exceptions

from onceward.errors import ConfigurationError, OncewardError, StoreBroken, StoreFull, StoreUnavailable

ErrorTemplate = tuple[type[OncewardError], str, str]

RETRY_HINT: Final = "retry the call"
ACL_HINT: Final = (
    "grant this user the permissions of docs/howto/redis-and-valkey.md:"
    " ~{onceward}* &{onceward}* +@read +@write +@scripting"
)
CLUSTER_HINT: Final = "use a server that is not part of a cluster"

ERRORS_BY_CODE: Final[dict[str, ErrorTemplate]] = {
    "LOADING": (StoreUnavailable, "it is still loading its data from disk", RETRY_HINT),
    "BUSY": (StoreUnavailable, "it is busy with a script of another client", RETRY_HINT),
    "MASTERDOWN": (StoreUnavailable, "this replica has lost its primary", "connect to the primary"),
    "READONLY": (StoreUnavailable, "this is a replica, which accepts no writes", "connect to the primary"),
    "NOREPLICAS": (StoreUnavailable, "it has fewer replicas than min-replicas-to-write requires", RETRY_HINT),
    "UNBLOCKED": (StoreUnavailable, "it became a replica", RETRY_HINT),
    "TRYAGAIN": (StoreUnavailable, "its slot is being moved", RETRY_HINT),
    "CLUSTERDOWN": (StoreUnavailable, "its cluster is down", RETRY_HINT),
    "OOM": (StoreFull, "it has no memory left; nothing was written", "raise maxmemory, or shorten the windows"),
    "MISCONF": (
        StoreFull,
        "it cannot save to disk and therefore refuses writes; nothing was written",
        "free space on its disk and check its log",
    ),
    "NOAUTH": (ConfigurationError, "it requires a password", "put it into the URL: redis://user:password@host"),
    "WRONGPASS": (ConfigurationError, "user name or password is wrong", "check the store's URL"),
    "NOPERM": (ConfigurationError, "its ACL rules deny a command that Onceward needs", ACL_HINT),
    "MOVED": (ConfigurationError, "it is a node of a cluster, and the keys live on another node", CLUSTER_HINT),
    "ASK": (ConfigurationError, "it is a node of a cluster, and the keys are being moved", CLUSTER_HINT),
    "CROSSSLOT": (ConfigurationError, "it is a node of a cluster, and the prefix has no hash tag", "write {name}"),
    "WRONGTYPE": (
        StoreBroken,
        "an Onceward key holds another type of value",
        "use a prefix that no other application uses",
    ),
}
UNKNOWN_ERROR: Final[ErrorTemplate] = (StoreBroken, "the server returned an error", "see the server's message")


CODES_BY_CLASS: Final[dict[type[Exception], str]] = {
    exceptions.NoScriptError: "NOSCRIPT",
    exceptions.ReadOnlyError: "READONLY",
    exceptions.OutOfMemoryError: "OOM",
    exceptions.BusyLoadingError: "LOADING",
    exceptions.NoPermissionError: "NOPERM",
    exceptions.MovedError: "MOVED",
    exceptions.AskError: "ASK",
    exceptions.TryAgainError: "TRYAGAIN",
    exceptions.MasterDownError: "MASTERDOWN",
    exceptions.ClusterDownError: "CLUSTERDOWN",
    exceptions.ClusterCrossSlotError: "CROSSSLOT",
}
"""redis-py removes these codes from the text of the error."""

ERROR_REPLIES: Final = (redis.ResponseError, redis.AuthenticationError, redis.BusyLoadingError)
"""Raised by redis-py for error replies of the server. The last two are subclasses of its ConnectionError."""


def error_text(error: Exception) -> str:
    """Return the text of an error reply as the server sent it: a code in capitals, then a text."""
    if isinstance(error, redis.AuthenticationError):
        return f"{'NOAUTH' if 'required' in str(error) else 'WRONGPASS'} {error}"
    code = CODES_BY_CLASS.get(type(error))
    return str(error) if code is None else f"{code} {error}"


def error_for(text: str, name: str) -> OncewardError:
    """Return a new Onceward error for an error reply. If a script failed, the server's code may follow other words."""
    template = ERRORS_BY_CODE.get(text.partition(" ")[0].rstrip(":"))
    if template is None:
        words = text.replace(":", " ").replace("'", " ").split()
        codes = (word.lstrip("-") for word in words)
        template = next((ERRORS_BY_CODE[code] for code in codes if code in ERRORS_BY_CODE), UNKNOWN_ERROR)
    kind, problem, hint = template
    return kind(f"{name}: {problem} ({text})", hint=hint)


def is_replica_error(text: str) -> bool:
    """Return whether a replica replied, as after a failover: a new connection may reach the new primary."""
    return "READONLY" in text or "MASTERDOWN" in text


class ConnectionLost(Exception):
    """The connection was lost before the reply. `stale`: it had been used before, so a new connection may succeed."""

    def __init__(self, text: str, *, stale: bool) -> None:
        super().__init__(text)
        self.stale = stale


def connection_lost_error(error: BaseException, name: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{name}: the connection was lost before the reply ({error})", hint="the request may have been executed"
    )


def timeout_error(name: str, seconds: float) -> StoreUnavailable:
    return StoreUnavailable(
        f"{name}: no reply within {seconds:.3g} s",
        hint="is the server paused, overloaded, or behind a broken network?",
    )


def connect_error(error: BaseException, name: str, seconds: float) -> OncewardError:
    """Return the error for a failed connection attempt: refused by the server, or server not reachable."""
    if isinstance(error, redis.TimeoutError | TimeoutError):
        return timeout_error(name, seconds)
    if isinstance(error, ERROR_REPLIES):
        text = error_text(error)
        if "DB index" in text or "invalid DB" in text:
            return ConfigurationError(f"{name}: the database does not exist ({text})", hint="check the end of the URL")
        return error_for(text, name)
    if "max number of clients" in str(error):
        return StoreUnavailable(
            f"{name}: the server has no connection left ({error})",
            hint="raise maxclients, or close connections of other clients (CLIENT LIST shows them)",
        )
    return StoreUnavailable(
        f"{name}: the server cannot be reached ({error})", hint="is the server running, and is the address right?"
    )
