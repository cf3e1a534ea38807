"""`duckdb:///house.duckdb?memory_limit=256MB&threads=2&primary_key=no`."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, unquote

from msgspec import Struct

from onceward.errors import ConfigurationError

EXAMPLE: Final = "write duckdb:///relative.duckdb, duckdb:////absolute/path.duckdb or duckdb://:memory:"
OURS: Final = ("memory_limit", "threads", "primary_key")
MEMORY: Final = ":memory:"
ANSWERS: Final = {"yes": True, "no": False}

_AMOUNT: Final = re.compile(r"(?=.*[1-9])\d{1,9}(\.\d{1,3})? ?([kmgt]i?b)", re.IGNORECASE | re.ASCII)
_COUNT: Final = re.compile(r"[1-9]\d{0,3}", re.ASCII)


class DuckAddress(Struct, frozen=True):
    """A file, and how much of the machine DuckDB may take for it."""

    path: str
    memory_limit: str | None = None
    """Without one, DuckDB takes up to 80 % of the machine's memory."""

    threads: int | None = None
    primary_key: bool = True
    """Whether tables are made with an index over their key, which grows with them and stays in memory."""

    @property
    def name(self) -> str:
        return f"duckdb:///{self.path}" if self.path != MEMORY else f"duckdb://{MEMORY}"


def parse(url: str) -> DuckAddress:
    place, _, query = url.partition("://")[2].partition("?")
    settings = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := sorted(settings.keys() - set(OURS)):
        raise ConfigurationError(
            f"{', '.join(unknown)}: no setting of a DuckDB URL", hint=f"there are: {', '.join(OURS)}"
        )
    return DuckAddress(
        _path(url, place),
        _memory_limit(settings.get("memory_limit")),
        _threads(settings.get("threads")),
        _primary_key(settings.get("primary_key", "yes")),
    )


def _path(url: str, place: str) -> str:
    if place == MEMORY:
        return MEMORY
    path = unquote(place[1:])
    if not place.startswith("/") or not path or "\0" in path:
        raise ConfigurationError(f"{url!r} names no file", hint=EXAMPLE)
    return path


def _memory_limit(said: str | None) -> str | None:
    if said is not None and not _AMOUNT.fullmatch(said):
        raise no_amount(said)
    return said


def no_amount(said: str) -> ConfigurationError:
    return ConfigurationError(
        f"memory_limit={said} is no amount of memory", hint="a number and its unit, such as 256MB or 2GiB"
    )


def _threads(said: str | None) -> int | None:
    if said is not None and not _COUNT.fullmatch(said):
        raise ConfigurationError(f"threads={said} is no number of threads", hint="1 or more; without it, one a core")
    return None if said is None else int(said)


def _primary_key(said: str) -> bool:
    if said not in ANSWERS:
        raise ConfigurationError(
            f"primary_key={said} is neither yes nor no",
            hint="yes: tables are made with an index over their key; no: without, in bounded memory",
        )
    return ANSWERS[said]
