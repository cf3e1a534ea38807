"""What Redis's refusals and broken connections mean to somebody who only wants to know whether to wait or to act."""

from __future__ import annotations

from typing import Final

from onceward.errors import ConfigurationError, OncewardError, StoreBroken, StoreFull, StoreUnavailable

from .resp import RedisError

Meaning = tuple[type[OncewardError], str, str]

AGAIN: Final = "the call may be repeated"
RIGHTS: Final = (
    "give this user the rights of docs/howto/redis-and-valkey.md: ~{onceward}* &{onceward}* +@read +@write +@scripting"
)
CLUSTERED: Final = "use a server that is not part of a cluster"

MEANINGS: Final[dict[str, Meaning]] = {
    "LOADING": (StoreUnavailable, "it is still reading its data from disk", AGAIN),
    "BUSY": (StoreUnavailable, "a script of somebody else keeps it busy", AGAIN),
    "MASTERDOWN": (StoreUnavailable, "this replica has lost its primary", "connect to the primary"),
    "READONLY": (StoreUnavailable, "this is a replica, and nothing can be written here", "connect to the primary"),
    "NOREPLICAS": (StoreUnavailable, "it has fewer replicas than its min-replicas-to-write asks for", AGAIN),
    "UNBLOCKED": (StoreUnavailable, "it became a replica", AGAIN),
    "TRYAGAIN": (StoreUnavailable, "its slot is being moved", AGAIN),
    "CLUSTERDOWN": (StoreUnavailable, "its cluster is down", AGAIN),
    "OOM": (StoreFull, "it has no memory left; nothing was written", "raise maxmemory, or shorten the windows"),
    "MISCONF": (
        StoreFull,
        "it cannot save to disk and therefore refuses writes; nothing was written",
        "make room on its disk, and look into its log",
    ),
    "NOAUTH": (ConfigurationError, "it wants a password", "put it into the URL: redis://user:password@host"),
    "WRONGPASS": (ConfigurationError, "user name or password is wrong", "check the store's URL"),
    "NOPERM": (ConfigurationError, "its access rules forbid what Onceward needs", RIGHTS),
    "MOVED": (ConfigurationError, "it is a node of a cluster, and our keys live on another one", CLUSTERED),
    "ASK": (ConfigurationError, "it is a node of a cluster, and our keys are being moved", CLUSTERED),
    "CROSSSLOT": (ConfigurationError, "it is a node of a cluster, and the prefix has no hash tag", "write {name}"),
    "WRONGTYPE": (StoreBroken, "a key of ours holds something else", "give Onceward a prefix of its own"),
}
UNEXPECTED: Final[Meaning] = (StoreBroken, "the server refused", "look at what it says")


def explain(refusal: RedisError, name: str) -> OncewardError:
    """A fresh error of ours. Inside of a script the server's code may stand behind other words."""
    meaning = MEANINGS.get(refusal.code)
    if meaning is None:
        words = refusal.text.replace(":", " ").replace("'", " ").split()
        meaning = next((MEANINGS[word.lstrip("-")] for word in words if word.lstrip("-") in MEANINGS), UNEXPECTED)
    kind, what, cure = meaning
    return kind(f"{name}: {what} ({refusal.text})", hint=cure)


def is_replica(refusal: RedisError) -> bool:
    """After a failover: the connection leads to the wrong server, and a new one may lead to the right one."""
    return "READONLY" in refusal.text or "MASTERDOWN" in refusal.text


class Cut(Exception):
    """The connection ended before the answer came. `stale`: it had been used before, so a new one may do better."""

    def __init__(self, text: str, *, stale: bool) -> None:
        super().__init__(text)
        self.stale = stale


def cut(error: BaseException, name: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{name}: the connection ended before the answer came ({error})", hint="what was asked may have been done"
    )


def late(name: str, seconds: float) -> StoreUnavailable:
    return StoreUnavailable(
        f"{name}: no answer within {seconds:.3g} s",
        hint="is the server paused, overloaded, or behind a broken network?",
    )


def unreachable(error: BaseException, name: str, seconds: float) -> OncewardError:
    """Connecting failed. What the server refuses is told apart from a server that is not there."""
    import redis  # here, because most calls never fail
    from redis.exceptions import NoPermissionError

    if isinstance(error, redis.TimeoutError | TimeoutError):
        return late(name, seconds)
    if isinstance(error, redis.ResponseError | redis.AuthenticationError | redis.BusyLoadingError):
        text = str(error)
        if isinstance(error, redis.BusyLoadingError):
            text = f"LOADING {text}"
        elif isinstance(error, NoPermissionError):
            text = f"NOPERM {text}"
        elif isinstance(error, redis.AuthenticationError):
            text = f"{'NOAUTH' if 'required' in text else 'WRONGPASS'} {text}"
        elif "DB index" in text or "invalid DB" in text:
            return ConfigurationError(f"{name}: there is no such database ({text})", hint="check the end of the URL")
        return explain(RedisError(text), name)
    return StoreUnavailable(f"{name}: it cannot be reached ({error})", hint="is the server up, and the address right?")
