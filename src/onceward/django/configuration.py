"""Read the setting `ONCEWARD`, and find the database that holds the records."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections
from msgspec import Struct

SETTING = "ONCEWARD"
OWN_NAMES = ("DATABASE", "APP", "HTTP")


class Configuration(Struct, frozen=True):
    """The setting `ONCEWARD`.

    `DATABASE` is the alias of the database with the records, `APP` is part of every key, and `HTTP` are the options of
    `IdempotencyMiddleware`. All other names are options of `Once` in capital letters: `{"LEASE": "30s"}`.
    """

    database: str
    app: str
    options: Mapping[str, Any]
    http: Mapping[str, Any]


def configuration() -> Configuration:
    """Return the setting as it is now: tests may override it."""
    given = getattr(settings, SETTING, {})
    if not isinstance(given, Mapping) or not all(isinstance(name, str) and name.isupper() for name in given):
        raise ImproperlyConfigured(
            f'{SETTING} must be a dict with names in capital letters, such as {{"DATABASE": "default", "APP": "shop"}}'
        )
    options = {name.lower(): value for name, value in given.items() if name not in OWN_NAMES}
    database = given.get("DATABASE", DEFAULT_DB_ALIAS)
    aliases = list(connections)
    if database not in aliases:
        raise ImproperlyConfigured(
            f"{SETTING}['DATABASE'] is {database!r}, but DATABASES has only {', '.join(sorted(aliases))}"
        )
    return Configuration(database, given.get("APP", "default"), options, given.get("HTTP", {}))


def is_test_environment() -> bool:
    """Return whether Django's test environment is set up, by `manage.py test` or by pytest-django.

    `mail.outbox` does not show it: the e-mail backend `locmem` creates it in any process. A server that was mistaken
    for a test would not renew its leases.
    """
    utils = sys.modules.get("django.test.utils")
    if utils is not None and hasattr(utils._TestState, "saved_data"):  # noqa: SLF001 (Django has no other sign)
        _seen.tests = True
        return True
    return False


class _Seen:
    tests = False


_seen = _Seen()


def has_run_tests() -> bool:
    """Return whether this process runs tests, or has run them. Then nothing may be written behind their back.

    When the tests have ended, Django's settings name the development database again.
    """
    return is_test_environment() or _seen.tests
