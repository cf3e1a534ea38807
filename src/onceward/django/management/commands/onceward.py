"""`manage.py onceward …`: the `onceward` command on the project's database, with the apps loaded."""

from __future__ import annotations

from argparse import REMAINDER, ArgumentParser
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from onceward.django.command_line import run_program


class Command(BaseCommand):
    """Pass all arguments to the `onceward` command."""

    help = "Inspect and operate Onceward's records: ls, explain, check, resolve, recover, schedule, consume, …"
    requires_system_checks: list[str] = []  # noqa: RUF012 (Django's interface)

    def run_from_argv(self, argv: Sequence[str]) -> None:
        """Do not parse the options here: each command of `onceward` has its own."""
        raise SystemExit(run_program(argv[2:]))

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("arguments", nargs=REMAINDER)

    def handle(self, *args: Any, arguments: Sequence[str] = (), **options: Any) -> None:  # noqa: ARG002 (Django's interface)
        """Run a command from Python: `call_command("onceward", "ls")`."""
        code = run_program(list(arguments))
        if code:
            raise CommandError(f"onceward {' '.join(arguments)} ended with exit code {code}", returncode=code)
