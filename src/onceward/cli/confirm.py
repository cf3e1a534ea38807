"""Before a record is changed: what will happen is shown, and somebody is asked. Afterwards it is said."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from onceward.protocol.note import SAGA
from onceward.protocol.record import Record, RecordState

from . import display
from .exit_codes import Exit
from .inspect import SHORT_ID, standing
from .program import CommandError, wants_json

WHY = click.option("--why", metavar="TEXT", default="", help="Your reason, for the audit trail.")
YES = click.option("--yes", is_flag=True, help="Do not ask.")
FORCE = click.option("--force", is_flag=True, help="Also if its lease is not over, or a saga has done some steps.")


def told(record: Record, now: int) -> str:
    """One line about a record that is about to change."""
    line = f"{standing(record, now)}  {record.key}  in {record.scope}  id:{record.id.hex()[:SHORT_ID]}"
    if record.note.get(SAGA):
        line += "  a saga (onceward sagas tells how far it has come)"
    if record.state is RecordState.PENDING:
        line += f"  owner {record.owner or '?'}, last renewed {display.span(now - record.renewed_at)} ago"
    return line


def ask(what: str, lines: Sequence[str], *, yes: bool) -> None:
    """Preview on stderr, then a question; without a terminal nothing happens unless --yes was said."""
    for line in lines:
        click.echo(f"  {display.cut(line, 300)}", err=True)
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(f"{what}? There is no terminal to ask on → say --yes", Exit.REFUSED)
    if not click.confirm(f"{what}?", err=True):
        raise click.Abort


def say(done: str, records: Sequence[Record]) -> None:
    if wants_json():
        display.print_json(
            {"done": done, "records": [{"id": one.id.hex(), "scope": one.scope, "key": one.key} for one in records]}
        )
        return
    for one in records:
        click.echo(display.cut(f"{done}: {one.key} in {one.scope}", 300))
