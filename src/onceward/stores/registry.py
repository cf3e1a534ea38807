"""Create the store for a URL."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from onceward.errors import ConfigurationError, MissingExtra
from onceward.protocol.ports import Store
from onceward.protocol.secrets import url_without_secrets

ENVIRONMENT = "ONCEWARD_STORE_URL"
DEFAULT = "sqlite:///onceward.db"
ENTRY_POINTS = "onceward.stores"

_BUILT_IN = {
    "memory": "memory",
    "sqlite": "sqlite",
    **dict.fromkeys(("postgresql", "postgres"), "postgres"),
    **dict.fromkeys(("redis", "rediss", "unix"), "redis"),
    "firestore": "firestore",
}
"""The packages of the built-in stores. Each extra has the name of its package."""

_WITHOUT_EXTRA = ("memory", "sqlite")


def open_store(url: str | None = None) -> Store:
    """Return the store for a URL, not yet connected.

    Other packages can add schemes through the entry-point group `onceward.stores`: scheme = callable(url) -> Store.

    Args:
        url: Such as `postgresql://user@host/shop`. The default is $ONCEWARD_STORE_URL, else `sqlite:///onceward.db`.

    Raises:
        ConfigurationError: The text is not a URL, or no store is registered for its scheme.
        MissingExtra: The driver of the store is not installed.
    """
    url = store_url(url)
    scheme = scheme_of(url)
    if not scheme:
        raise ConfigurationError(
            f"{url_without_secrets(url)!r} is not a store URL",
            hint="write for example sqlite:///onceward.db or postgresql://user@host/shop",
        )
    return _factory(scheme)(url)


def scheme_of(url: str) -> str:
    """Return the scheme in lower case, or "". The error does not quote the URL, which may contain a password."""
    from urllib.parse import urlsplit  # imported here: callers that pass a store object do not need it

    try:
        return urlsplit(url).scheme
    except ValueError:
        raise ConfigurationError(
            "the store URL cannot be parsed", hint="in a password write %5B for [ and %5D for ], and %XX for non-ASCII"
        ) from None


def store_url(url: str | None, configured: str | None = None) -> str:
    """Return `url`, or the default if it is None or empty. `configured` is the URL from a configuration file."""
    return url or os.environ.get(ENVIRONMENT) or configured or DEFAULT


def _factory(scheme: str) -> Callable[[str], Store]:
    try:
        factory: Callable[[str], Store] = _load(scheme)
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"the store for {scheme}:// needs the module {error.name!r}, which is not installed",
            hint=_install_hint(scheme),
        ) from error
    except ImportError as error:
        if _BUILT_IN.get(scheme) != "postgres" or "libpq" not in str(error):
            raise
        raise MissingExtra(
            f"the store for {scheme}:// cannot find libpq, which psycopg needs",
            hint='pip install "psycopg[binary]"',
        ) from error
    return factory


def _install_hint(scheme: str) -> str:
    if scheme in _BUILT_IN and scheme not in _WITHOUT_EXTRA:
        return f'pip install "onceward[{_BUILT_IN[scheme]}]"'
    return f"install the driver, or the extra of the package that provides {scheme}://"


def _load(scheme: str) -> Any:
    if scheme in _BUILT_IN:
        return import_module(f"onceward.stores.{_BUILT_IN[scheme]}").from_url
    from importlib.metadata import entry_points  # imported here: it would add a sixth to our import time

    for entry in entry_points(group=ENTRY_POINTS, name=scheme):
        return entry.load()
    known = sorted({*_BUILT_IN, *(entry.name for entry in entry_points(group=ENTRY_POINTS))})
    raise ConfigurationError(
        f"no store is registered for {scheme}://",
        hint=f"available: {', '.join(known)}; packages can add one by the entry-point group {ENTRY_POINTS!r}",
    )
