"""Run the `onceward` command inside `manage.py`, on the database of the setting `ONCEWARD`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from django.utils.module_loading import autodiscover_modules

from onceward.cli.program import load_commands, program
from onceward.cli.settings import VARIABLES

from .configuration import configuration

CLIENT = "onceward.django:once"
WITH_CLIENT = ("recover", "schedule")
"""Commands that take MODULE:APP; here it may be left out."""

WORK_MODULES = ("jobs", "tasks")
"""The modules of each app that are imported for these commands: they declare schedules and recoverable functions."""

OPTIONS_OF_MANAGE = ("--settings", "--pythonpath")


def run_program(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code."""
    given = _without_options_of_manage(arguments)
    if given and given[0] in WITH_CLIENT:
        autodiscover_modules(*WORK_MODULES)
        if not any(":" in one and not one.startswith("-") for one in given[1:]):
            given.append(CLIENT)
    load_commands()
    found = configuration()
    with _environment({VARIABLES["store"]: f"django://{found.database}", VARIABLES["app"]: found.app}):
        try:
            program.main(args=given, prog_name="manage.py onceward")
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)


def _without_options_of_manage(arguments: Sequence[str]) -> list[str]:
    """Leave out options that Django has already applied."""
    kept: list[str] = []
    skip = False
    for one in arguments:
        if skip:
            skip = False
        elif one in OPTIONS_OF_MANAGE:
            skip = True
        elif not one.startswith(tuple(f"{name}=" for name in OPTIONS_OF_MANAGE)):
            kept.append(one)
    return kept


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set variables that are not set, for as long as the command runs. A flag or a variable of the caller wins."""
    added = {name: value for name, value in values.items() if not os.environ.get(name)}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
