"""Checks that `manage.py check` runs: is the setting `ONCEWARD` usable?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from onceward.errors import OncewardError

from .client import once
from .configuration import configuration
from .database_store import require_supported


def register() -> None:
    """Register the checks. Django registers each only once."""
    checks.register(check_setting)


def check_setting(*, app_configs: Sequence[Any] | None = None, **_: object) -> list[checks.CheckMessage]:  # noqa: ARG001 (Django's interface)
    """Check the names and values in `ONCEWARD`, and that its database is of a supported kind."""
    try:
        require_supported(connections[configuration().database])
        once.configure()
    except (ImproperlyConfigured, OncewardError) as error:
        return [checks.Error(str(error), id="onceward.E001")]
    return []
