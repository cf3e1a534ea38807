"""What makes two statements equal, by the specification's own rules (1.0.3, part two, 2.3.1), as one digest.

What does not count: what the server sets (stored, version, authority; the timestamp if none was given), the display of
verbs, the definitions of activities, how a timestamp is spelt, the order of the members of a group, and upper and lower
case where it means nothing (the domain of an address, UUIDs). All else counts as it is written, a duration as text.
Only numbers are compared by value: 1 is 1.0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

SET_BY_SERVER: Final = frozenset({"id", "stored", "timestamp", "version", "authority"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)

_encode = msgspec.json.Encoder(order="deterministic").encode
_PLAIN: Final = (str, bool, int)


def digest(statement: Mapping[str, Any]) -> str:
    """The same for equal statements, whatever their timestamps: `instant` tells these."""
    kept = {name: value for name, value in statement.items() if name not in SET_BY_SERVER}
    return hashlib.sha256(_encode(_essence(kept))).hexdigest()


def instant(text: str, *, exactly: bool = False) -> datetime:
    """The point in time, whatever its spelling; to the millisecond, as no server has to keep more. No zone: UTC."""
    moment = datetime.fromisoformat(text.upper().replace(",", "."))
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    step = timedelta.resolution if exactly else _MILLISECOND
    return _EPOCH + (aware - _EPOCH) // step * step


def microseconds(moment: datetime) -> int:
    """Since 1970."""
    return (moment - _EPOCH) // timedelta.resolution


def _essence(told: dict[str, Any]) -> dict[str, Any]:
    """Of a statement without what the server sets, or of a SubStatement."""
    told["actor"] = _anyone(told["actor"])
    told["verb"] = told["verb"]["id"]
    told["object"] = _object(told["object"])
    if "result" in told:
        told["result"] = _by_value(told["result"])
    if "context" in told:
        told["context"] = _context(told["context"])
    if "attachments" in told:
        told["attachments"] = _by_value(told["attachments"])
    if "timestamp" in told:
        told["timestamp"] = (instant(told["timestamp"]) - _EPOCH) // _MILLISECOND
    return told


def _anyone(value: Mapping[str, Any]) -> Mapping[str, Any]:
    mbox = value.get("mbox")
    members = value.get("member")
    if mbox is None and members is None and "mbox_sha1sum" not in value:
        return value
    told = dict(value)
    if mbox is not None:
        local, _, domain = mbox.rpartition("@")
        told["mbox"] = f"{local}@{domain.lower()}"
    if "mbox_sha1sum" in told:
        told["mbox_sha1sum"] = told["mbox_sha1sum"].lower()
    if members is not None:
        told["member"] = sorted(_encode(_anyone(member)).decode() for member in members)
    return told


def _object(value: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = value.get("objectType", "Activity")
    if kind == "Activity":
        return _activity(value)
    if kind == "StatementRef":
        return {**value, "id": value["id"].lower()}
    return _essence(dict(value)) if kind == "SubStatement" else _anyone(value)


def _activity(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in value.items() if name != "definition"}


def _context(value: Mapping[str, Any]) -> dict[str, Any]:
    told = dict(value)
    if "registration" in told:
        told["registration"] = told["registration"].lower()
    for name in ("instructor", "team"):
        if name in told:
            told[name] = _anyone(told[name])
    if "contextActivities" in told:  # one alone is a list of one: so it is handed out again
        told["contextActivities"] = {
            kind: [_activity(one) for one in (given if isinstance(given, list) else [given])]
            for kind, given in told["contextActivities"].items()
        }
    for name, part in (("contextAgents", "agent"), ("contextGroups", "group")):
        if name in told:
            told[name] = [{**one, part: _anyone(one[part])} for one in told[name]]
    if "statement" in told:
        told["statement"] = _object(told["statement"])
    if "extensions" in told:
        told["extensions"] = _by_value(told["extensions"])
    return told


def _by_value(value: Any) -> Any:
    """1.0 as 1, all the way down."""
    if isinstance(value, _PLAIN) or value is None:
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [_by_value(one) for one in value]
    return {name: _by_value(one) for name, one in value.items()}
