"""Parse DuckDB URLs: `duckdb:///house.duckdb?memory_limit=256MB&threads=2&primary_key=no`."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, unquote

from msgspec import Struct

from onceward.errors import ConfigurationError
from onceward.protocol.secrets import setting_name_without_secrets, url_without_secrets

EXAMPLE: Final = "write duckdb:///relative.duckdb, duckdb:////absolute/path.duckdb or duckdb://:memory:"
SETTINGS: Final = ("memory_limit", "threads", "primary_key")
MEMORY: Final = ":memory:"
BOOLEANS: Final = {"yes": True, "no": False}

_AMOUNT: Final = re.compile(r"(?=.*[1-9])\d{1,9}(\.\d{1,3})? ?([kmgt]i?b)", re.IGNORECASE | re.ASCII)
_COUNT: Final = re.compile(r"[1-9]\d{0,3}", re.ASCII)


class DuckAddress(Struct, frozen=True):
    """A file, and the resources that DuckDB may use for it."""

    path: str
    memory_limit: str | None = None
    """Default: DuckDB uses up to 80 % of the machine's memory."""

    threads: int | None = None
    primary_key: bool = True
    """Whether tables are created with an index over their key. It grows with the table and stays in memory."""

    @property
    def name(self) -> str:
        return f"duckdb:///{self.path}" if self.path != MEMORY else f"duckdb://{MEMORY}"


def parse(url: str) -> DuckAddress:
    location, _, query = url.partition("://")[2].partition("?")
    if "@" in query or not location.startswith(("/", ":")):
        raise ConfigurationError(f"{url_without_secrets(url)!r} does not name a file", hint=EXAMPLE)
    settings = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := sorted(settings.keys() - set(SETTINGS)):
        shown = [setting_name_without_secrets(name, url) for name in unknown]
        raise ConfigurationError(
            f"unknown settings in a DuckDB URL: {', '.join(shown)}", hint=f"the settings are: {', '.join(SETTINGS)}"
        )
    return DuckAddress(
        _path(url, location),
        _memory_limit(settings.get("memory_limit")),
        _threads(settings.get("threads")),
        _primary_key(settings.get("primary_key", "yes")),
    )


def _path(url: str, location: str) -> str:
    if location == MEMORY:
        return MEMORY
    path = unquote(location[1:])
    if not location.startswith("/") or not path or "\0" in path:
        raise ConfigurationError(f"{url_without_secrets(url)!r} does not name a file", hint=EXAMPLE)
    return path


def _memory_limit(value: str | None) -> str | None:
    if value is not None and not _AMOUNT.fullmatch(value):
        raise invalid_memory_limit(value)
    return value


def invalid_memory_limit(value: str) -> ConfigurationError:
    return ConfigurationError(
        f"memory_limit={value} is not an amount of memory", hint="write a number and a unit, such as 256MB or 2GiB"
    )


def _threads(value: str | None) -> int | None:
    if value is not None and not _COUNT.fullmatch(value):
        raise ConfigurationError(
            f"threads={value} is not a number of threads", hint="1 or more; the default is one per core"
        )
    return None if value is None else int(value)


def _primary_key(value: str) -> bool:
    if value not in BOOLEANS:
        raise ConfigurationError(
            f"primary_key={value} is neither yes nor no",
            hint="yes: tables are created with an index over their key; no: without an index, in bounded memory",
        )
    return BOOLEANS[value]
