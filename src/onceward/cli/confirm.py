"""Preview a change, ask for confirmation, and print what was done."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from onceward.administration.record_view import state_text
from onceward.protocol.note import SAGA
from onceward.protocol.record import Record, RecordState

from . import display
from .exit_codes import Exit
from .inspect import SHORT_ID
from .program import CommandError, wants_json

WHY = click.option("--why", metavar="TEXT", default="", help="Your reason, for the audit trail.")
YES = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
FORCE = click.option("--force", is_flag=True, help="Even if the lease has not expired, or a saga has done some steps.")


def record_line(record: Record, now: int) -> str:
    """Return one line about a record that is about to change."""
    line = f"{state_text(record, now)}  {record.key}  in {record.scope}  id:{record.id.hex()[:SHORT_ID]}"
    if record.note.get(SAGA):
        line += "  a saga (onceward sagas shows its progress)"
    if record.state is RecordState.PENDING:
        line += f"  owner {record.owner or '?'}, last renewed {display.span(now - record.renewed_at)} ago"
    return line


def ask(what: str, lines: Sequence[str], *, yes: bool) -> None:
    """Print a preview on stderr and ask for confirmation. Without a terminal, raise unless `yes`."""
    for line in lines:
        click.echo(f"  {display.cut(line, 300)}", err=True)
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(f"{what}? There is no terminal for the confirmation → use --yes", Exit.REFUSED)
    if not click.confirm(f"{what}?", err=True):
        raise click.Abort


def print_done(done: str, records: Sequence[Record]) -> None:
    if wants_json():
        display.print_json(
            {
                "done": done,
                "records": [{"id": record.id.hex(), "scope": record.scope, "key": record.key} for record in records],
            }
        )
        return
    for record in records:
        click.echo(display.cut(f"{done}: {record.key} in {record.scope}", 300))
