"""`onceward operations`: the table of operations, as it is declared and as it holds."""

from __future__ import annotations

from typing import Any

import click

from onceward.client.base import BaseClient
from onceward.errors import ConfigurationError
from onceward.operations.table import Declaration, Operations
from onceward.protocol.duration import format_duration
from onceward.protocol.policy import Policy

from . import display
from .exit_codes import Exit
from .load_object import named
from .program import OUTPUT, CommandError, complain, program, wants_json
from .settings import declared


@program.command("operations")
@click.argument("place", metavar="[MODULE:NAME]", required=False)
@OUTPUT
def list_operations(place: str | None) -> int:
    """List the declared operations: key, window, lease and choices.

    Without MODULE:NAME they are read from onceward.toml, or [tool.onceward.operations] in pyproject.toml. With it, from
    an `Operations`, or from a client that has some. Exit code 1: a window is shorter than the retry span of its sender.

    \b
    Examples:
      onceward operations
      onceward operations shop.app:once -o json
    """
    operations, defaults = _found(place)
    if not operations:
        raise CommandError("no operations are declared here → write [operations.NAME] in onceward.toml", Exit.ABSENT)
    rows = [_row(one, one.policy(defaults)) for one in operations]
    if wants_json():
        display.print_json(rows)
    else:
        titles = ("NAME", "KEY", "WINDOW", "LEASE", "RUNNING", "AFTER CRASH", "REASONS")
        display.table(titles, [_cells(row) for row in rows], elastic=(1, 2, 6))
    unwise = [row for row in rows if row["attention"]]
    for row in unwise:
        complain(f"{row['name']}: {row['attention']} → make its window longer")
    return Exit.ATTENTION if unwise else Exit.OK


def _found(place: str | None) -> tuple[Operations, Policy]:
    if place is None:
        return declared(), Policy()
    found = named(place)
    if isinstance(found, BaseClient):
        return found.operations, found.policy
    if not isinstance(found, Operations):
        raise ConfigurationError(f"{place} is neither a table of operations nor a client", hint="name one of these")
    return found, Policy()


def _row(one: Declaration, policy: Policy) -> dict[str, Any]:
    window = policy.window
    key = one.written.get("key")
    return {
        "name": one.name,
        "key": key if isinstance(key, str | list) else None if key is None else repr(key),
        "window": str(window),
        "window_from": window.since if window.kind == "lasting" else None,
        "lease": format_duration(policy.lease),
        "on_running": policy.on_running,
        "on_done": policy.on_done,
        "after_crash": policy.after_crash.name.lower(),
        "max_attempts": policy.max_attempts or None,
        "fingerprint": policy.fingerprint,
        "retry_span": None if policy.retry_span is None else format_duration(policy.retry_span),
        "reasons": policy.reasons.chosen(),
        "from": one.file or "code",
        "attention": policy.forgets_early(),
    }


def _cells(row: dict[str, Any]) -> list[str]:
    key = row["key"]
    return [
        row["name"],
        "all arguments" if key is None else " or ".join(key) if isinstance(key, list) else key,
        row["window"],
        row["lease"],
        row["on_running"],
        row["after_crash"],
        ", ".join(f"{name}={word}" for name, word in row["reasons"].items()),
    ]
