"""Checks that `manage.py check` runs: is the setting `ONCEWARD` usable, and is the middleware in the right place?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from onceward.errors import OncewardError

from .client import once
from .configuration import configuration
from .database_store import require_supported
from .view_options import MIDDLEWARE

AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"


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
        return [checks.Error(str(error), id="onceward.E001")]
    return []


def check_middleware(*, app_configs: Sequence[Any] | None = None, **_: object) -> list[checks.CheckMessage]:  # noqa: ARG001 (Django's interface)
    """Check that the user is known when the middleware asks for it."""
    order = [one for one in settings.MIDDLEWARE if one in (MIDDLEWARE, AUTHENTICATION)]
    if order == [MIDDLEWARE, AUTHENTICATION]:
        return [checks.Error(f"{MIDDLEWARE} must come after {AUTHENTICATION}", id="onceward.E002")]
    return []
