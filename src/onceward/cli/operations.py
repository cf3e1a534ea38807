"""`onceward operations`: list the declared operations with their effective settings."""

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
from .load_object import load_object
from .program import OUTPUT, CommandError, print_error, program, wants_json
from .settings import operations_from_file

NOT_LISTED = "functions that are only decorated are not listed here"


@program.command("operations")
@click.argument("target", metavar="[MODULE:NAME]", required=False)
@OUTPUT
def list_operations(target: str | None) -> int:
    """List the operations of a table: key, window, lease and policy.

    Without MODULE:NAME, reads onceward.toml, or [tool.onceward.operations] in pyproject.toml. With it, reads an
    `Operations` object or a client with operations. Functions that are only decorated are not listed. Exit code 1: a
    window is shorter than the retry span of its sender.

    \b
    Examples:
      onceward operations
      onceward operations shop.app:once -o json
    """
    operations, defaults = _load_operations(target)
    if not operations:
        where, todo = "the settings file", "add [operations.NAME] to onceward.toml"
        if target is not None:
            where, todo = target, "declare them with Operations(…), and pass Once(…, operations=…)"
        raise CommandError(f"{where} declares no operations ({NOT_LISTED}) → {todo}", Exit.ABSENT)
    rows = [_row(one, one.policy(defaults)) for one in operations]
    if wants_json():
        display.print_json(rows)
    else:
        titles = ("NAME", "KEY", "WINDOW", "LEASE", "RUNNING", "AFTER CRASH", "REASONS")
        display.print_table(titles, [_cells(row) for row in rows], elastic=(1, 2, 6))
    short_windows = [row for row in rows if row["attention"]]
    for row in short_windows:
        print_error(f"{row['name']}: {row['attention']} → make its window longer")
    return Exit.ATTENTION if short_windows else Exit.OK


def _load_operations(target: str | None) -> tuple[Operations, Policy]:
    if target is None:
        return operations_from_file(), Policy()
    found = load_object(target)
    if isinstance(found, BaseClient):
        return found.operations, found.policy
    if not isinstance(found, Operations):
        raise ConfigurationError(
            f"{target} is neither an Operations object nor a client", hint="pass MODULE:NAME of one of these"
        )
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
        "reasons": policy.reasons.customised(),
        "from": one.file or "code",
        "attention": policy.short_window_warning(),
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
