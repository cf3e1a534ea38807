"""`onceward sagas`: how far sagas have come, and which of them wait for a person."""

from __future__ import annotations

from typing import Any

import click

from onceward.errors import OncewardError
from onceward.protocol.ports import Filter
from onceward.protocol.record import Record, RecordState
from onceward.sagas.journal import Direction, Journal, JournalEntry, Progress, journal_from

from . import display
from .find import each
from .inspect import SHORT_ID, brief, standing
from .open_store import opened
from .program import HOW_MANY, SCOPE, common, program, scope, store_url, wants_json

UNFINISHED = (RecordState.PENDING, RecordState.FAILED, RecordState.PARKED)
SIGNS = {
    Progress.BEGUN: "?",
    Progress.DONE: "+",
    Progress.NOT_DONE: "-",
    Progress.UNDOING: "~",
    Progress.UNDONE: "x",
}


@program.command("sagas")
@SCOPE
@click.option("--parked", is_flag=True, help="Only those that wait for a person.")
@click.option("--all", "everything", is_flag=True, help="Those that are completed, too.")
@click.option("--limit", type=HOW_MANY, default=50, show_default=True, help="At most so many.")
@common
def sagas(*, parked: bool, everything: bool, limit: int) -> None:
    """List sagas that are under way, waiting or undone, and how far each of their steps has come.

    \b
    In the table, before the name of a step:
      +  done        ?  begun, and nobody knows        -  begun, and certainly not done
      x  undone      ~  being undone

    \b
    Examples:
      onceward sagas
      onceward sagas --parked -o json
      onceward resolve order:7 --applied       how its step ended, once you have found out
      onceward retry order:7                   go on with all attempts; what was undone begins anew
    """
    states = (RecordState.PARKED,) if parked else UNFINISHED + ((RecordState.COMPLETED,) if everything else ())
    found: list[tuple[Record, int, Journal]] = []
    more = False
    with opened(store_url()) as store:
        for record, now in each(store, Filter(states=states, scope=scope())):
            journal = _journal(record)
            if journal is None:
                continue
            if len(found) == limit:
                more = True
                break
            found.append((record, now, journal))
    found.sort(key=lambda one: (one[0].state is not RecordState.PARKED, -one[0].updated_at))
    if wants_json():
        display.print_json([{**brief(record, now), "saga": as_json(journal)} for record, now, journal in found])
    elif found:
        titles = ("STATE", "SCOPE", "KEY", "DIRECTION", "STEPS", "TOUCHED", "ID")
        display.table(titles, [_row(*one) for one in found], elastic=(1, 2))
    else:
        click.echo("No sagas.", err=True)
    if more:
        click.echo(f"There are more than these {limit}; --limit shows more.", err=True)


def _journal(record: Record) -> Journal | None:
    try:
        return journal_from(record.note)
    except OncewardError:  # written by a newer one, or damaged: `onceward show` tells
        return None


def _row(record: Record, now: int, journal: Journal) -> list[str]:
    return [
        standing(record, now),
        record.scope,
        record.key,
        "undone" if journal.undone else journal.direction.value,
        " ".join(f"{SIGNS[line.progress]}{line.name}" for line in journal.entries),
        display.span(now - record.updated_at),
        f"id:{record.id.hex()[:SHORT_ID]}",
    ]


def as_json(journal: Journal) -> dict[str, Any]:
    """The journal without the results: those are for the application."""
    return {
        "direction": journal.direction.value,
        "undone": journal.undone,
        "error_type": journal.error_type,
        "error": journal.error,
        "steps": [
            {
                "name": line.name,
                "kind": line.kind.value,
                "progress": line.progress.value,
                "attempts": line.attempts,
                "undo_attempts": line.undo_attempts,
                "error_type": line.error_type,
                "error": line.error,
            }
            for line in journal.entries
        ],
    }


def sentence(journal: Journal) -> str:
    """One for `onceward explain`."""
    where = "was undone" if journal.undone else "goes back" if _compensates(journal) else "goes forward"
    steps = ", ".join(_words(line) for line in journal.entries)
    return f"It is a saga that {where}: {steps}." if steps else f"It is a saga that {where}."


def _compensates(journal: Journal) -> bool:
    return journal.direction is Direction.COMPENSATING


def _words(line: JournalEntry) -> str:
    tries = line.undo_attempts if line.progress in (Progress.UNDOING, Progress.UNDONE) else line.attempts
    return f"{line.name} {line.progress}{f' in {tries} attempts' if tries > 1 else ''}"
