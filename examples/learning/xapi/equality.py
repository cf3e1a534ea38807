"""Computes a digest that is equal for equal statements, by the specification's rules (1.0.3, part two, 2.3.1).

These do not count: what the server sets (stored, version, authority; the timestamp if none was given), the display of
verbs, the definitions of activities, the notation of a timestamp, the order of a group's members, and upper and lower
case where it has no meaning (the domain of an address, UUIDs). Everything else counts as written, a duration as text,
but without fractions below 0.01 seconds. Only numbers are compared by value: 1 equals 1.0.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

SET_BY_SERVER: Final = frozenset({"id", "stored", "timestamp", "version", "authority"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)

_encode = msgspec.json.Encoder(order="deterministic").encode
_PLAIN: Final = (str, bool, int)
_SECONDS: Final = re.compile(r"(\d+)\.(\d+)S\Z")


def digest(statement: Mapping[str, Any]) -> str:
    """Return the digest of a statement without its timestamp, which is compared by `instant`."""
    kept = {name: value for name, value in statement.items() if name not in SET_BY_SERVER}
    return hashlib.sha256(_encode(_comparable(kept))).hexdigest()


def instant(text: str, *, exactly: bool = False) -> datetime:
    """Parse a timestamp in any notation, to the millisecond, as servers need not keep more. Without a zone: UTC."""
    moment = datetime.fromisoformat(text.upper().replace(",", "."))
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    step = timedelta.resolution if exactly else _MILLISECOND
    return _EPOCH + (aware - _EPOCH) // step * step


def microseconds(moment: datetime) -> int:
    """Return the microseconds since 1970."""
    return (moment - _EPOCH) // timedelta.resolution


def _comparable(value: dict[str, Any]) -> dict[str, Any]:
    """Reduce a statement, without what the server sets, or a SubStatement to what counts for equality."""
    value["actor"] = _comparable_actor(value["actor"])
    value["verb"] = value["verb"]["id"]
    value["object"] = _object(value["object"])
    if "result" in value:
        value["result"] = _normalise_numbers(value["result"])
        if "duration" in value["result"]:
            value["result"]["duration"] = _SECONDS.sub(_hundredths, value["result"]["duration"])
    if "context" in value:
        value["context"] = _context(value["context"])
    if "attachments" in value:
        value["attachments"] = _normalise_numbers(value["attachments"])
    if "timestamp" in value:
        value["timestamp"] = (instant(value["timestamp"]) - _EPOCH) // _MILLISECOND
    return value


def _comparable_actor(value: Mapping[str, Any]) -> Mapping[str, Any]:
    mbox = value.get("mbox")
    members = value.get("member")
    if mbox is None and members is None and "mbox_sha1sum" not in value:
        return value
    result = dict(value)
    if mbox is not None:
        local, _, domain = mbox.rpartition("@")
        result["mbox"] = f"{local}@{domain.lower()}"
    if "mbox_sha1sum" in result:
        result["mbox_sha1sum"] = result["mbox_sha1sum"].lower()
    if members is not None:
        result["member"] = sorted(_encode(_comparable_actor(member)).decode() for member in members)
    return result


def _object(value: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = value.get("objectType", "Activity")
    if kind == "Activity":
        return _activity(value)
    if kind == "StatementRef":
        return {**value, "id": value["id"].lower()}
    return _comparable(dict(value)) if kind == "SubStatement" else _comparable_actor(value)


def _activity(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in value.items() if name != "definition"}


def _context(value: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(value)
    if "registration" in result:
        result["registration"] = result["registration"].lower()
    for name in ("instructor", "team"):
        if name in result:
            result[name] = _comparable_actor(result[name])
    if "contextActivities" in result:  # a single one is equal to a list of one
        result["contextActivities"] = {
            kind: [_activity(one) for one in (given if isinstance(given, list) else [given])]
            for kind, given in result["contextActivities"].items()
        }
    for name, part in (("contextAgents", "agent"), ("contextGroups", "group")):
        if name in result:
            result[name] = [{**one, part: _comparable_actor(one[part])} for one in result[name]]
    if "statement" in result:
        result["statement"] = _object(result["statement"])
    if "extensions" in result:
        result["extensions"] = _normalise_numbers(result["extensions"])
    return result


def _hundredths(seconds: re.Match[str]) -> str:
    """Return the seconds of a duration without what is below 0.01, and without trailing zeros."""
    fraction = seconds[2][:2].rstrip("0")
    return f"{seconds[1]}.{fraction}S" if fraction else f"{seconds[1]}S"


def _normalise_numbers(value: Any) -> Any:
    """Replace 1.0 by 1 at all levels."""
    if isinstance(value, _PLAIN) or value is None:
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [_normalise_numbers(one) for one in value]
    return {name: _normalise_numbers(one) for name, one in value.items()}
