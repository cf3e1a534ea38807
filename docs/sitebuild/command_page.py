"""Write the pages that come from data in the code: the commands, the metrics and the tables."""

from __future__ import annotations

import click

from onceward.cli.program import load_commands, program
from onceward.observe.gauges import GAUGES
from onceward.protocol.counters import OUTCOMES, PROBLEMS
from onceward.stores.postgres.schema import migrations
from onceward.stores.sqlite import schema as sqlite_schema


def pages() -> dict[str, str]:
    return {
        "reference/cli/commands.md": commands_page(),
        "reference/metrics.md": metrics_page(),
        "reference/schemas.md": schemas_page(),
    }


def commands_page() -> str:
    """Return every command with its usage, arguments and options, as `onceward COMMAND --help` prints them."""
    load_commands()
    lines = [
        "# Every command and option",
        "",
        "This page is generated from the command itself. For typical uses, see [the guide](../../howto/command.md); for settings and exit codes, see",
        "[the command `onceward`](../command.md).",
        "",
    ]
    with click.Context(program, info_name="onceward") as top:
        for name in program.list_commands(top):
            command = program.get_command(top, name)
            if command is not None:
                lines += _command(command, name, top)
    return "\n".join(lines)


def _command(command: click.Command, name: str, parent: click.Context, level: int = 2) -> list[str]:
    with click.Context(command, info_name=name, parent=parent) as context:
        context.max_content_width = 100
        context.terminal_width = 100
        path = context.command_path
        lines = [f"{'#' * level} `{path}`", "", "```text", command.get_help(context).strip(), "```", ""]
        if isinstance(command, click.Group):
            for child in command.list_commands(context):
                inner = command.get_command(context, child)
                if inner is not None:
                    lines += _command(inner, child, context, level + 1)
    return lines


def metrics_page() -> str:
    """Return the names and meanings of all metrics."""
    rows = [
        f"| `onceward_{name}_total` | `onceward.{name}` | {what} |" for name, what in {**OUTCOMES, **PROBLEMS}.items()
    ]
    gauges = [f"| `onceward_{name}` | `onceward.{name}` | {what} |" for name, what in GAUGES.values()]
    return "\n".join(
        [
            "# Metrics",
            "",
            "[Count outcomes, check rules, send alerts](../howto/counters.md) shows how to export them. The label `scope` is the operation, without its",
            "tenant. Keys are never labels.",
            "",
            "## Counters",
            "",
            "| Prometheus | OpenTelemetry | What is counted |",
            "|---|---|---|",
            *rows,
            "| `onceward_processed_total` | `onceward.processed` | calls that returned a result; the label `replay` is `true` or `false` |",
            "",
            "## Gauges",
            "",
            "Gauges read the store when the metrics are collected. One process of many is enough for that: pass `pending=False` to the others.",
            "",
            "| Prometheus | OpenTelemetry | What is measured |",
            "|---|---|---|",
            *gauges,
            "",
        ]
    )


def schemas_page() -> str:
    """Return the statements that create the tables."""
    postgres = "\n\n".join(text.strip() for text in migrations()).replace("{schema}", "")
    sqlite = "\n\n".join(text.strip() for text in sqlite_schema.MIGRATIONS)
    lines = [
        "# Tables",
        "",
        "Onceward never creates tables in PostgreSQL implicitly; run `onceward migrate`, or print the statements with `onceward migrate --sql`. Read the",
        "records through [the view `onceward_keys`](../howto/stores.md#read-the-records-with-sql). Do not change the tables by hand.",
        "",
        "## PostgreSQL",
        "",
        "```sql",
        postgres,
        "```",
        "",
        "## SQLite",
        "",
        "Onceward creates the tables when it opens the file.",
        "",
        "```sql",
        sqlite,
        "```",
        "",
        "## Redis and Valkey",
        "",
        "One hash per key. [Use Redis or Valkey](../howto/redis-and-valkey.md) lists the names.",
        "",
        "## Firestore",
        "",
        "One document per key. [Use Firestore](../howto/firestore.md) lists the fields.",
        "",
    ]
    return "\n".join(lines)
