"""Parse PostgreSQL URLs: `postgresql://user@host/database`, as libpq reads them, plus a few settings of Onceward."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

from msgspec import Struct

from onceward.errors import ConfigurationError
from onceward.protocol.secrets import setting_name_without_secrets, url_without_secrets
from onceward.protocol.suggest import closest_name

SCHEMES: Final = ("postgresql", "postgres")
EXAMPLE: Final = "write postgresql://user:password@host:5432/database"
CODES: Final = "in a password write %40 for @, %2F for /, %3A for :, %23 for #, %3F for ?, %25 for %, %5B for ["
OWN_SETTINGS: Final = frozenset({"schema", "migrate", "connections", "prepare", "notify"})
CONNECTIONS: Final = 4
"""Calls are batched, so that one connection carries most of them; the others serve scans of many records."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_HOST: Final = r"(?:\[[0-9A-Fa-f:.%]+\]|[^:,\[\]]*)(?::\d*)?"
_HOSTS: Final = re.compile(rf"{_HOST}(?:,{_HOST})*")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})|%00")
_UP_TO_1000: Final = re.compile(r"0*(?:[1-9][0-9]{0,2}|1000)")
_BOOLEANS: Final = {"0": False, "false": False, "no": False, "1": True, "true": True, "yes": True}


class PostgresSettings(Struct, frozen=True):
    """The settings of a store. Can be pickled and sent to other processes."""

    conninfo: str
    name: str
    schema: str = ""
    migrate: bool = False
    connections: int = CONNECTIONS
    prepare: bool | None = None
    notify: bool = False

    def __repr__(self) -> str:  # never conninfo, which includes the password
        return f"<PostgresSettings {self.name}>"


def parse(url: str) -> PostgresSettings:
    """Return the settings of a URL. Settings that are not Onceward's are passed to libpq."""
    parts = _split(url)
    if parts.scheme not in SCHEMES:
        raise ConfigurationError(f"{hidden(url)!r} is not a PostgreSQL URL", hint=EXAMPLE)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"{hidden(url)!r} repeats a setting", hint=EXAMPLE)
    own = {name: value for name, value in pairs if name in OWN_SETTINGS}
    libpq = {name: value for name, value in pairs if name not in OWN_SETTINGS}
    _refuse_unknown(libpq, url)
    libpq.setdefault("fallback_application_name", "onceward")
    libpq["client_encoding"] = "utf8"
    return PostgresSettings(
        conninfo=_join(parts._replace(scheme="postgresql", query=urlencode(libpq, quote_via=quote))),
        name=hidden(url),
        schema=checked_schema(own.get("schema", "")),
        migrate=_parse_bool("migrate", own.get("migrate", "0")),
        connections=_parse_int("connections", own.get("connections", str(CONNECTIONS))),
        prepare=_parse_bool("prepare", own["prepare"]) if "prepare" in own else None,
        notify=_parse_bool("notify", own.get("notify", "0")),
    )


def _split(url: str) -> SplitResult:
    """Split the URL. Error messages do not quote it: libpq's message would contain the password."""
    problem = ""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts, problem = urlsplit(""), "a [ without a matching ]"
    if parts.netloc.count("@") > 1 or "@" in parts.path or not _HOSTS.fullmatch(parts.netloc.rpartition("@")[2]):
        problem = "after the user there must be host or host:port"
    elif _BAD_ESCAPE.search(parts.netloc + parts.path):
        problem = "a % must be followed by two hexadecimal digits"
    elif re.search(r"\s", url):
        problem = "it contains a space"
    elif parts.fragment:
        problem = "it contains a #"
    if problem:
        raise ConfigurationError(f"this PostgreSQL URL cannot be parsed: {problem}", hint=f"{EXAMPLE}; {CODES}")
    return parts


def _join(parts: SplitResult) -> str:
    """Join the parts, with `//` also if there is no host: `postgresql:///database?host=/run/postgresql`."""
    return f"{parts.scheme}://{parts.netloc}{parts.path}{'?' if parts.query else ''}{parts.query}"


def _refuse_unknown(names: Iterable[str], url: str) -> None:
    """Raise if libpq does not know a setting of the `url`. libpq itself would only raise on the first call."""
    from psycopg import pq  # imported here: a URL can be displayed without the driver

    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()} | {"ssl"}
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f"a PostgreSQL URL has no setting {setting_name_without_secrets(name, url)!r}",
                hint=f"{closest_name(name, OWN_SETTINGS | known)}Onceward's own are {', '.join(sorted(OWN_SETTINGS))}; "
                "the others are libpq's",
            )


def hidden(url: str) -> str:
    """Return the URL for messages: without a password in any part."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    pairs = [(name, value) for name, value in parse_qsl(parts.query) if "password" not in name]
    netloc = f"{user.partition(':')[0]}{at}{host}"
    return url_without_secrets(_join(parts._replace(netloc=netloc, query=urlencode(pairs, quote_via=quote))))


def checked_schema(name: str) -> str:
    """Return the name if it is a plain identifier: it becomes part of every statement."""
    if name and not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} is not accepted as a schema name",
            hint="use letters, digits and _, at most 63, not starting with a digit",
        )
    return name


def _parse_bool(name: str, value: str) -> bool:
    if value.lower() not in _BOOLEANS:
        raise ConfigurationError(f"{name}={value!r} is neither yes nor no", hint=f"write {name}=1 or {name}=0")
    return _BOOLEANS[value.lower()]


def _parse_int(name: str, value: str) -> int:
    if not _UP_TO_1000.fullmatch(value):  # more is a mistake
        raise ConfigurationError(
            f"{name}={value!r} is not a valid number", hint=f"write a number from 1 to 1000, as in {name}=4"
        )
    return int(value)
