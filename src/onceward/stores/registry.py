"""From a URL to a store."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from onceward.errors import ConfigurationError, MissingExtra
from onceward.protocol.ports import Store

ENVIRONMENT = "ONCEWARD_STORE_URL"
DEFAULT = "sqlite:///onceward.db"
ENTRY_POINTS = "onceward.stores"

_BUILT_IN = {
    "memory": "onceward.stores.memory",
    "sqlite": "onceward.stores.sqlite",
    "postgresql": "onceward.stores.postgres",
    "postgres": "onceward.stores.postgres",
}
_BUILT_IN |= dict.fromkeys(("redis", "rediss", "unix"), "onceward.stores.redis")
_BUILT_IN["firestore"] = "onceward.stores.firestore"
_EXTRAS: dict[str, str] = {
    "redis": "redis", "rediss": "redis", "unix": "redis", "postgresql": "postgres", "postgres": "postgres"
}  # fmt: skip
_EXTRAS["firestore"] = "firestore"


def open_store(url: str | None = None) -> Store:
    """The store that the URL names, not connected yet. Without one: $ONCEWARD_STORE_URL, else sqlite:///onceward.db.

    Other packages add schemes by the entry-point group `onceward.stores`: scheme = callable(url) -> Store.
    """
    url = store_url(url)
    scheme = scheme_of(url)
    if not scheme:
        raise ConfigurationError(
            f"{url!r} is not a store URL", hint="write for example sqlite:///onceward.db or postgresql://user@host/shop"
        )
    return _factory(scheme)(url)


def scheme_of(url: str) -> str:
    """In small letters; empty if there is none. An error quotes nothing of the URL: a password may be in it."""
    from urllib.parse import urlsplit  # not at the top: those who give a store object need none of it

    try:
        return urlsplit(url).scheme
    except ValueError as error:
        raise ConfigurationError(
            f"the store's URL cannot be read ({error})", hint="in a password write %5B for [ and %5D for ]"
        ) from None


def store_url(url: str | None, filed: str | None = None) -> str:
    """The URL that is meant when none, or an empty one, is given. `filed` is what a file says."""
    return url or os.environ.get(ENVIRONMENT) or filed or DEFAULT


def _factory(scheme: str) -> Callable[[str], Store]:
    try:
        factory: Callable[[str], Store] = _load(scheme)
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"the store for {scheme}:// needs the module {error.name!r}, which is not installed",
            hint=_how_to_get(scheme),
        ) from error
    except ImportError as error:
        if _EXTRAS.get(scheme) != "postgres" or "libpq" not in str(error):
            raise
        raise MissingExtra(
            f"the store for {scheme}:// finds no libpq, which psycopg works with",
            hint="install psycopg[binary] beside onceward[postgres]",
        ) from error
    return factory


def _how_to_get(scheme: str) -> str:
    if scheme in _EXTRAS:
        return f"install onceward[{_EXTRAS[scheme]}]"
    return f"install the driver, or the extra of the package that brings {scheme}://"


def _load(scheme: str) -> Any:
    if scheme in _BUILT_IN:
        return import_module(_BUILT_IN[scheme]).from_url
    from importlib.metadata import entry_points  # a sixth of our import time, for those who need it

    for entry in entry_points(group=ENTRY_POINTS, name=scheme):
        return entry.load()
    known = sorted(_BUILT_IN) + sorted(entry.name for entry in entry_points(group=ENTRY_POINTS))
    raise ConfigurationError(
        f"no store is known for {scheme}://",
        hint=f"known here: {', '.join(known)}; another package may add it by the entry-point group {ENTRY_POINTS!r}",
    )
