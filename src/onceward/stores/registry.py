"""From a URL to a store."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from urllib.parse import urlsplit

from onceward.errors import ConfigurationError
from onceward.ports import Store

ENVIRONMENT = "ONCEWARD_STORE_URL"
DEFAULT = "sqlite:///onceward.db"
ENTRY_POINTS = "onceward.stores"

_BUILT_IN = {"memory": "onceward.stores.memory", "sqlite": "onceward.stores.sqlite"}


def open_store(url: str | None = None) -> Store:
    """The store that the URL names, not connected yet. Without one: $ONCEWARD_STORE_URL, else sqlite:///onceward.db.

    Other packages add schemes by the entry-point group `onceward.stores`: name = scheme, object = callable(url) -> Store.
    """
    url = url or os.environ.get(ENVIRONMENT) or DEFAULT
    scheme = urlsplit(url).scheme
    if not scheme:
        raise ConfigurationError(
            f"{url!r} is not a store URL", hint="write for example sqlite:///onceward.db or memory://"
        )
    return _factory(scheme)(url)


def _factory(scheme: str) -> Callable[[str], Store]:
    if scheme in _BUILT_IN:
        factory: Callable[[str], Store] = import_module(_BUILT_IN[scheme]).from_url
        return factory
    for entry in entry_points(group=ENTRY_POINTS, name=scheme):
        found: Callable[[str], Store] = entry.load()
        return found
    known = sorted(_BUILT_IN) + sorted(entry.name for entry in entry_points(group=ENTRY_POINTS))
    raise ConfigurationError(
        f"no store is known for {scheme}://",
        hint=f"known here: {', '.join(known)}; another package may add it by the entry-point group {ENTRY_POINTS!r}",
    )
