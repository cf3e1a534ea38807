"""Checks that `manage.py check` runs: is the setting `ONCEWARD` usable, and is the middleware in the right place?

- `onceward.E001`: the setting ONCEWARD is invalid, or its database cannot hold the records
- `onceward.E002`: the middleware is listed before AuthenticationMiddleware
- `onceward.E003`: a view has @idempotent, but the middleware is not listed
- `onceward.W001`: ONCEWARD has no APP
- `onceward.W002`: a middleware that adds headers is listed after Onceward's, and a view is transactional
- `onceward.W003`: transactions on the SQLite database of the records do not begin with a write lock
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils.module_loading import import_string

from onceward.errors import OncewardError

from .client import once
from .configuration import SETTING, configuration
from .database_store import require_supported
from .view_options import MIDDLEWARE, OPTIONS_ATTRIBUTE, ViewOptions

AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"
ADDING_HEADERS = (
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",  # since Django 6.0
    "django.middleware.gzip.GZipMiddleware",
    "django.middleware.http.ConditionalGetMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.security.SecurityMiddleware",
)
"""Django's middleware that adds headers to responses of POST requests. Cookies are sent in any case."""


def register() -> None:
    """Register the checks. Django registers each only once."""
    checks.register(check_setting)
    checks.register(check_middleware)


def check_setting(*, app_configs: Sequence[Any] | None = None, **_: object) -> list[checks.CheckMessage]:  # noqa: ARG001 (Django's interface)
    """Check the names and values in `ONCEWARD`, and that its database is of a supported kind."""
    try:
        require_supported(connections[configuration().database])
        once.configure()
    except (ImproperlyConfigured, OncewardError) as error:
        hint = f'for example: {SETTING} = {{"DATABASE": "default", "APP": "shop", "LEASE": "30s"}}'
        return [checks.Error(str(error), hint=hint, id="onceward.E001")]
    found: list[checks.CheckMessage] = []
    if "APP" not in getattr(settings, SETTING, {}):
        found.append(
            checks.Warning(
                f"{SETTING} has no APP, which is part of every key",
                hint=f'add the name of this project: {SETTING} = {{"APP": "shop"}}. Without it, two projects that '
                "use the same database share their keys. Another APP means other keys: set it before you enforce",
                id="onceward.W001",
            )
        )
    return found + _deferred_transactions(configuration().database)


def _deferred_transactions(alias: str) -> list[checks.CheckMessage]:
    """Warn if a transaction on SQLite takes its write lock only with its first write."""
    if connections[alias].vendor != "sqlite":
        return []
    options = connections[alias].settings_dict.get("OPTIONS") or {}
    if str(options.get("transaction_mode") or "").upper() in ("IMMEDIATE", "EXCLUSIVE"):
        return []
    return [
        checks.Warning(
            f"transactions on the SQLite database {alias!r} do not lock it before their first write, so concurrent "
            "transactions that read and then write fail with 'database is locked'",
            hint=f'add to DATABASES["{alias}"]: "OPTIONS": {{"transaction_mode": "IMMEDIATE"}}',
            id="onceward.W003",
        )
    ]


def check_middleware(*, app_configs: Sequence[Any] | None = None, **_: object) -> list[checks.CheckMessage]:  # noqa: ARG001 (Django's interface)
    """Check that the middleware handles `@idempotent` views, knows the user, and loses no header."""
    listed = list(settings.MIDDLEWARE)
    if MIDDLEWARE not in listed:
        return [_missing(path) for path, _ in list(_idempotent_views())[:1]]
    after = listed[listed.index(MIDDLEWARE) + 1 :]
    found: list[checks.CheckMessage] = []
    if _is_any(after, (AUTHENTICATION,)) and "principal" not in _http_options():
        found.append(
            checks.Error(
                f"{MIDDLEWARE} is listed before {AUTHENTICATION}, so it does not know request.user",
                hint=f"list {MIDDLEWARE} last in MIDDLEWARE, or set ONCEWARD['HTTP']['principal']",
                id="onceward.E002",
            )
        )
    losing = _is_any(after, ADDING_HEADERS)
    transactional = next((path for path, options in _idempotent_views() if options.transactional), None)
    if losing and transactional is not None:
        found.append(
            checks.Warning(
                f"{losing} is listed after {MIDDLEWARE}, so the headers that it adds are missing from responses of "
                f"transactional views, such as {transactional}",
                hint=f"list {MIDDLEWARE} last in MIDDLEWARE",
                id="onceward.W002",
            )
        )
    return found


def _missing(path: str) -> checks.CheckMessage:
    return checks.Error(
        f"the view at {path} has @idempotent, but {MIDDLEWARE} is not in MIDDLEWARE, so each of its requests fails",
        hint=f"add {MIDDLEWARE} to MIDDLEWARE, as its last item",
        id="onceward.E003",
    )


def _http_options() -> Any:
    try:
        return configuration().http
    except ImproperlyConfigured:  # E001 reports it
        return {}


def _is_any(listed: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the first listed middleware that has one of these names, or is a subclass of one of them."""
    classes = tuple(one for one in map(_imported, names) if isinstance(one, type))
    for name in listed:
        middleware = _imported(name)
        if isinstance(middleware, type) and issubclass(middleware, classes):
            return name
    return None


def _imported(name: str) -> Any:
    try:
        return import_string(name)
    except ImportError:  # another version of Django has it; Django itself reports a wrong name when it starts
        return None


def _idempotent_views() -> Iterator[tuple[str, ViewOptions]]:
    """Yield the paths of the decorated views with their options."""
    if getattr(settings, "ROOT_URLCONF", None):
        yield from _views_below("/", get_resolver())


def _views_below(path: str, resolver: URLResolver) -> Iterator[tuple[str, ViewOptions]]:
    patterns: Any = resolver.url_patterns
    for one in patterns:
        below = f"{path}{one.pattern}"
        if isinstance(one, URLResolver):
            yield from _views_below(below, one)
        elif isinstance(one, URLPattern) and hasattr(one.callback, OPTIONS_ATTRIBUTE):
            yield below, getattr(one.callback, OPTIONS_ATTRIBUTE)
