"""The Django app. Its label is `onceward`, as in `manage.py migrate onceward`."""

from __future__ import annotations

from django.apps import AppConfig


class OncewardConfig(AppConfig):
    """The app of `INSTALLED_APPS += ["onceward.django"]`."""

    name = "onceward.django"
    label = "onceward"
    verbose_name = "Onceward"

    def ready(self) -> None:
        from onceward.protocol.hints import commands

        from . import checks

        checks.register()
        commands.program, commands.migrate = "python manage.py onceward", "python manage.py migrate"
