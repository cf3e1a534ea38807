"""What must be so on a server before claims can be trusted to it. Looked at once, when a store is opened."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from msgspec import Struct

from onceward.errors import ConfigurationError
from onceward.protocol.capabilities import HealthFinding

from .errors import explain
from .resp import RedisError, Reply, command

OLDEST: Final = (6, 2)
SAFE_EVICTION: Final = "noeviction"
EVICTION: Final = "unsafe_eviction"
PERSISTENCE: Final = "unsafe_persistence"

SNAPSHOTS: Final = (
    "%s: a crash loses what was written since the last snapshot (appendonly no); set appendonly yes to keep it"
)

logger = logging.getLogger("onceward.redis")

Ask = Callable[[bytes], Awaitable[Reply]]


class Facts(Struct, frozen=True):
    """What the server says about itself. None: it does not tell."""

    version: str
    eviction: str | None
    appends: bool | None
    snapshots: bool | None


async def examine(ask: Ask, name: str) -> Facts:
    info = await ask(command([b"INFO"]))
    if isinstance(info, RedisError):
        if info.code != "NOPERM":
            raise explain(info, name)
        return Facts("", None, None, None)
    said = dict(line.split(":", 1) for line in info.decode("utf-8", "replace").splitlines() if ":" in line)
    if said.get("loading") == "1":  # it then says that it appends to no file
        raise explain(RedisError("LOADING"), name)
    appends = {"1": True, "0": False}.get(said.get("aof_enabled", ""))
    return Facts(
        version=said.get("redis_version", ""),
        eviction=said.get("maxmemory_policy"),
        appends=appends,
        snapshots=None if appends else await _snapshots(ask),
    )


async def _snapshots(ask: Ask) -> bool | None:
    reply = await ask(command([b"CONFIG", b"GET", b"save"]))
    if isinstance(reply, RedisError) or not isinstance(reply, list) or len(reply) != 2:  # noqa: PLR2004 (name and value)
        return None
    return bool(reply[1].strip())


class Danger(NamedTuple):
    """How claims could vanish here, and what to do about it."""

    what: str
    todo: str


def remarks(facts: Facts, *, unsafe_eviction: bool, unsafe_persistence: bool) -> list[HealthFinding]:
    """For people. A risk that was taken by name is told as a fact, and no more."""
    kept = {True: "appends to a file", False: "takes snapshots only" if facts.snapshots else "keeps nothing"}
    persistence = "is not told" if facts.appends is None else kept[facts.appends]
    evicts = HealthFinding("eviction", facts.eviction == SAFE_EVICTION, facts.eviction or "the policy is not told")
    keeps = HealthFinding("persistence", facts.appends is True, f"{persistence}; see appendonly and appendfsync")
    return [
        HealthFinding("server", well=True, detail=facts.version or "of a version that is not told"),
        evicts if unsafe_eviction else _unless(evicts, _of_eviction(facts.eviction)),
        keeps if unsafe_persistence else _unless(keeps, _of_persistence(facts)),
    ]


def _unless(remark: HealthFinding, danger: Danger | None) -> HealthFinding:
    if danger is None:
        return remark
    return HealthFinding(remark.name, well=False, detail=f"it {danger.what}; {danger.todo}", unsafe=True)


def require(facts: Facts, name: str, *, unsafe_eviction: bool, unsafe_persistence: bool) -> None:
    """Raise if claims could vanish here. Each choice can be overridden, by name."""
    require_version(facts, name)
    if not unsafe_eviction:
        _refuse(_of_eviction(facts.eviction), name)
    if not unsafe_persistence:
        _refuse(_of_persistence(facts), name)
        if not facts.appends:
            logger.warning(SNAPSHOTS, name)


def require_version(facts: Facts, name: str) -> None:
    version = tuple(int(part) for part in facts.version.split(".")[:2] if part.isdecimal())
    if version and version < OLDEST:
        raise ConfigurationError(
            f"{name} is Redis {facts.version}", hint="Onceward needs Redis 6.2 or newer, or Valkey"
        )


def _refuse(danger: Danger | None, name: str) -> None:
    if danger is not None:
        raise ConfigurationError(f"{name} {danger.what}", hint=danger.todo)


def _of_eviction(policy: str | None) -> Danger | None:
    if policy is None:
        return Danger(
            "does not tell its maxmemory-policy; one that evicts would drop live claims",
            f"allow +info to this user, or say ?{EVICTION}=allow if you know that it is {SAFE_EVICTION}",
        )
    if policy == SAFE_EVICTION:
        return None
    return Danger(
        f"has maxmemory-policy {policy}: when memory is short it drops live claims, and work runs twice",
        f"set it to {SAFE_EVICTION}, or say ?{EVICTION}=allow to take that risk",
    )


def _of_persistence(facts: Facts) -> Danger | None:
    if facts.appends or facts.snapshots:
        return None
    if facts.snapshots is None:
        return Danger(
            "does not tell whether it keeps its data through a restart",
            f"allow +info and +config|get to this user, or say ?{PERSISTENCE}=allow if you know that it does",
        )
    return Danger(
        "keeps nothing through a restart (appendonly no, save ''): all claims and results would be gone",
        f"set appendonly yes, or say ?{PERSISTENCE}=allow to take that risk",
    )
