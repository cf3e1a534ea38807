"""`postgresql://user@host/database`, as libpq reads it, with a few settings of ours."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

from msgspec import Struct

from onceward.errors import ConfigurationError
from onceward.protocol.suggest import closest_name

SCHEMES: Final = ("postgresql", "postgres")
EXAMPLE: Final = "write postgresql://user:password@host:5432/database"
CODES: Final = "in a password write %40 for @, %2F for /, %3A for :, %23 for #, %3F for ?, %25 for %, %5B for ["
OURS: Final = frozenset({"schema", "migrate", "connections", "prepare", "notify"})
CONNECTIONS: Final = 4
"""Calls are grouped, so that one connection carries most of them; the others are for who asks for many records."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_PLACE: Final = r"(?:\[[0-9A-Fa-f:.%]+\]|[^:,\[\]]*)(?::\d*)?"
_PLACES: Final = re.compile(rf"{_PLACE}(?:,{_PLACE})*")
_NO_CODE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})|%00")
_SWITCH: Final = {"0": False, "false": False, "no": False, "1": True, "true": True, "yes": True}


class Settings(Struct, frozen=True):
    """All that a store needs to know. Travels to other processes."""

    conninfo: str
    name: str
    schema: str = ""
    migrate: bool = False
    connections: int = CONNECTIONS
    prepare: bool | None = None
    notify: bool = False


def parse(url: str) -> Settings:
    """Our settings out of the URL; the rest is libpq's business."""
    parts = _read(url)
    if parts.scheme not in SCHEMES:
        raise ConfigurationError(f"{hidden(url)!r} is not a PostgreSQL URL", hint=EXAMPLE)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"{hidden(url)!r} has a setting twice", hint=EXAMPLE)
    ours = {name: value for name, value in pairs if name in OURS}
    theirs = {name: value for name, value in pairs if name not in OURS}
    _refuse_unknown(theirs)
    theirs.setdefault("fallback_application_name", "onceward")
    theirs["client_encoding"] = "utf8"
    return Settings(
        conninfo=_written(parts._replace(scheme="postgresql", query=urlencode(theirs, quote_via=quote))),
        name=hidden(url),
        schema=checked_schema(ours.get("schema", "")),
        migrate=_switch("migrate", ours.get("migrate", "0")),
        connections=_number("connections", ours.get("connections", str(CONNECTIONS))),
        prepare=_switch("prepare", ours["prepare"]) if "prepare" in ours else None,
        notify=_switch("notify", ours.get("notify", "0")),
    )


def _read(url: str) -> SplitResult:
    """Its parts. What is wrong with it is said without a word of it: libpq would show the password."""
    wrong = ""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts, wrong = urlsplit(""), "a [ without its ]"
    if "@" in parts.path or not _PLACES.fullmatch(parts.netloc.rpartition("@")[2]):
        wrong = "behind the user there must be host or host:port"
    elif _NO_CODE.search(parts.netloc + parts.path):
        wrong = "a % begins no code of two digits there"
    elif parts.fragment:
        wrong = "there is a # in it"
    if wrong:
        raise ConfigurationError(f"this PostgreSQL URL cannot be read: {wrong}", hint=f"{EXAMPLE}; {CODES}")
    return parts


def _written(parts: SplitResult) -> str:
    """With both slashes also where no host stands behind them: `postgresql:///database?host=/run/postgresql`."""
    return f"{parts.scheme}://{parts.netloc}{parts.path}{'?' if parts.query else ''}{parts.query}"


def _refuse_unknown(names: Iterable[str]) -> None:
    """Libpq would refuse them too, but not before the first call."""
    from psycopg import pq  # here, because a URL can be shown without the driver

    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()} | {"ssl"}
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f"a PostgreSQL URL has no setting {name!r}",
                hint=f"{closest_name(name, OURS | known)}ours are {', '.join(sorted(OURS))}; the others are libpq's",
            )


def hidden(url: str) -> str:
    """The URL for people: without a password, wherever it stands."""
    parts = urlsplit(url)
    user, at, place = parts.netloc.rpartition("@")
    pairs = [(name, value) for name, value in parse_qsl(parts.query) if "password" not in name]
    netloc = f"{user.partition(':')[0]}{at}{place}"
    return _written(parts._replace(netloc=netloc, query=urlencode(pairs, quote_via=quote)))


def checked_schema(name: str) -> str:
    """A plain name: it becomes part of every statement."""
    if name and not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} cannot be the name of a schema here", hint="letters, digits and _, at most 63, no digit first"
        )
    return name


def _switch(name: str, value: str) -> bool:
    if value.lower() not in _SWITCH:
        raise ConfigurationError(f"{name}={value!r} is neither yes nor no", hint=f"write {name}=1 or {name}=0")
    return _SWITCH[value.lower()]


def _number(name: str, value: str) -> int:
    if not value.isdecimal() or not 1 <= int(value) <= 1000:  # noqa: PLR2004 (more is a mistake)
        raise ConfigurationError(f"{name}={value!r} is not possible", hint=f"write {name}= a number from 1 to 1000")
    return int(value)
