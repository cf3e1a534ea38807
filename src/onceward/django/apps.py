"""The Django app. Its label is `onceward`, as in `manage.py migrate onceward`."""

from __future__ import annotations

from django.apps import AppConfig


class OncewardConfig(AppConfig):
    """The app of `INSTALLED_APPS += ["onceward.django"]`."""

    name = "onceward.django"
    label = "onceward"
    verbose_name = "Onceward"

    def ready(self) -> None:
        from . import checks

        checks.register()
