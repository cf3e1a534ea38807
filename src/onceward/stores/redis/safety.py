"""Check once, when a store is opened, that the server will not lose claims: version, eviction and persistence."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import redis
from msgspec import Struct
from redis.exceptions import NoPermissionError

from onceward.errors import ConfigurationError
from onceward.protocol.capabilities import HealthFinding

from .errors import ERROR_REPLIES, error_for, error_text
from .scripts import encode_command
from .transport import Reply

MIN_VERSION: Final = (6, 2)
SAFE_EVICTION: Final = "noeviction"
UNSAFE_FSYNC: Final = "no"
EVICTION: Final = "unsafe_eviction"
PERSISTENCE: Final = "unsafe_persistence"

SNAPSHOT_WARNING: Final = (
    "%s: a crash loses what was written since the last snapshot (appendonly no); set appendonly yes to keep it"
)

logger = logging.getLogger("onceward.redis")

Call = Callable[[bytes], Awaitable[Reply]]


class ServerInfo(Struct, frozen=True):
    """What the server reports about itself. None: not reported."""

    version: str
    eviction: str | None
    appends: bool | None
    snapshots: bool | None
    appendfsync: str | None = None


async def read_server_info(call: Call, name: str) -> ServerInfo:
    try:
        reply = await call(encode_command(b"INFO"))
    except NoPermissionError:
        return ServerInfo("", None, None, None)
    except ERROR_REPLIES as error:
        raise error_for(error_text(error), name) from error
    fields = dict(line.split(":", 1) for line in reply.decode("utf-8", "replace").splitlines() if ":" in line)
    if fields.get("loading") == "1":  # while loading, it reports that it does not append to a file
        raise error_for("LOADING", name)
    appends = {"1": True, "0": False}.get(fields.get("aof_enabled", ""))
    return ServerInfo(
        version=fields.get("redis_version", ""),
        eviction=fields.get("maxmemory_policy"),
        appends=appends,
        snapshots=None if appends else await _takes_snapshots(call),
        appendfsync=await _setting(call, b"appendfsync") if appends else None,
    )


async def _takes_snapshots(call: Call) -> bool | None:
    schedule = await _setting(call, b"save")
    return None if schedule is None else bool(schedule.strip())


async def _setting(call: Call, name: bytes) -> str | None:
    try:
        reply = await call(encode_command(b"CONFIG", b"GET", name))
    except redis.ResponseError:  # forbidden, or unknown to a managed server
        return None
    if len(reply) != 2:  # noqa: PLR2004 (name and value)
        return None
    return str(reply[1].decode("utf-8", "replace"))


class Risk(NamedTuple):
    """How the server could lose claims, and what to do about it."""

    problem: str
    fix: str


def health_findings(info: ServerInfo, *, unsafe_eviction: bool, unsafe_persistence: bool) -> list[HealthFinding]:
    """Return the findings for `onceward doctor`. A risk that the user accepted is reported as a plain fact."""
    kept = {True: "appends to a file", False: "takes snapshots only" if info.snapshots else "keeps nothing"}
    persistence = "is not reported" if info.appends is None else kept[info.appends]
    eviction = HealthFinding("eviction", info.eviction == SAFE_EVICTION, info.eviction or "the policy is not reported")
    if info.appendfsync is not None:
        persistence += f" (appendfsync {info.appendfsync})"
    appends = info.appends is True and info.appendfsync != UNSAFE_FSYNC
    durability = HealthFinding("persistence", appends, f"{persistence}; see appendonly and appendfsync")
    return [
        HealthFinding("server", ok=True, detail=info.version or "version not reported"),
        eviction if unsafe_eviction else _or_risk(eviction, _eviction_risk(info.eviction)),
        durability if unsafe_persistence else _or_risk(durability, _persistence_risk(info)),
    ]


def _or_risk(finding: HealthFinding, risk: Risk | None) -> HealthFinding:
    if risk is None:
        return finding
    return HealthFinding(finding.name, ok=False, detail=f"it {risk.problem}; {risk.fix}", unsafe=True)


def raise_if_unsafe(info: ServerInfo, name: str, *, unsafe_eviction: bool, unsafe_persistence: bool) -> None:
    """Raise if the server could lose claims. The user can accept each risk by its setting."""
    raise_if_too_old(info, name)
    if not unsafe_eviction:
        _raise_risk(_eviction_risk(info.eviction), name)
    if not unsafe_persistence:
        _raise_risk(_persistence_risk(info), name)
        if not info.appends:
            logger.warning(SNAPSHOT_WARNING, name)


def raise_if_too_old(info: ServerInfo, name: str) -> None:
    version = tuple(int(part) for part in info.version.split(".")[:2] if part.isdecimal())
    if version and version < MIN_VERSION:
        raise ConfigurationError(f"{name} is Redis {info.version}", hint="Onceward needs Redis 6.2 or newer, or Valkey")


def _raise_risk(risk: Risk | None, name: str) -> None:
    if risk is not None:
        raise ConfigurationError(f"{name} {risk.problem}", hint=risk.fix)


def _eviction_risk(policy: str | None) -> Risk | None:
    if policy is None:
        return Risk(
            "does not report its maxmemory-policy; one that evicts would drop live claims",
            f"allow +info for this user, or pass ?{EVICTION}=allow if you know that it is {SAFE_EVICTION}",
        )
    if policy == SAFE_EVICTION:
        return None
    return Risk(
        f"has maxmemory-policy {policy}: when memory is short it drops live claims, and work runs twice",
        f"set it to {SAFE_EVICTION}, or pass ?{EVICTION}=allow to accept that risk",
    )


def _persistence_risk(info: ServerInfo) -> Risk | None:
    if info.appends and info.appendfsync == UNSAFE_FSYNC:
        return Risk(
            "has appendfsync no: a power cut loses the last half minute or more of claims and results,"
            " and work runs twice",
            f"set appendfsync everysec or always, or pass ?{PERSISTENCE}=allow to accept that risk",
        )
    if info.appends or info.snapshots:
        return None
    if info.snapshots is None:
        return Risk(
            "does not report whether it keeps its data through a restart",
            f"allow +info and +config|get for this user, or pass ?{PERSISTENCE}=allow if you know that it does",
        )
    return Risk(
        "keeps nothing through a restart (appendonly no, save ''): all claims and results would be lost",
        f"set appendonly yes, or pass ?{PERSISTENCE}=allow to accept that risk",
    )
