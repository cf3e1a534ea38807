"""`onceward sagas`: list sagas, the progress of their steps, and which of them need an operator."""

from __future__ import annotations

from typing import Any

import click

from onceward.administration.record_view import record_as_json, state_text
from onceward.administration.sagas import journal_or_none
from onceward.protocol.ports import Filter
from onceward.protocol.record import Record, RecordState
from onceward.sagas.journal import Journal, StepProgress

from . import display
from .find import iter_records
from .inspect import SHORT_ID
from .open_store import opened_store
from .program import POSITIVE_COUNT, SCOPE, common_options, program, scope, store_url, wants_json

UNFINISHED = (RecordState.PENDING, RecordState.FAILED, RecordState.PARKED)
PROGRESS_SIGNS = {
    StepProgress.BEGUN: "?",
    StepProgress.DONE: "+",
    StepProgress.NOT_DONE: "-",
    StepProgress.UNDOING: "~",
    StepProgress.UNDONE: "x",
}
STEP_FIELDS = ("name", "kind", "progress", "attempts", "undo_attempts", "error_type", "error")


@program.command("sagas")
@SCOPE
@click.option("--parked", is_flag=True, help="Only sagas that need an operator.")
@click.option("--all", "everything", is_flag=True, help="Also list completed sagas.")
@click.option("--limit", type=POSITIVE_COUNT, default=50, show_default=True, help="Maximum number of sagas.")
@common_options
def sagas(*, parked: bool, everything: bool, limit: int) -> None:
    """List sagas that are running, waiting or undone, with the progress of each step.

    \b
    Signs before the name of a step:
      +  done        ?  started, outcome unknown       -  started, certainly not done
      x  undone      ~  being undone

    \b
    Examples:
      onceward sagas
      onceward sagas --parked -o json
      onceward resolve order:7 --applied       record how its step ended, after you have found out
      onceward retry order:7                   continue with all attempts; an undone saga starts over
    """
    states = (RecordState.PARKED,) if parked else UNFINISHED + ((RecordState.COMPLETED,) if everything else ())
    found: list[tuple[Record, int, Journal]] = []
    more = False
    with opened_store(store_url()) as store:
        for record, now in iter_records(store, Filter(states=states, scope=scope())):
            journal = journal_or_none(record)
            if journal is None:
                continue
            if len(found) == limit:
                more = True
                break
            found.append((record, now, journal))
    found.sort(key=lambda one: (one[0].state is not RecordState.PARKED, -one[0].updated_at))
    if wants_json():
        display.print_json(
            [{**record_as_json(record, now), "saga": as_json(journal)} for record, now, journal in found]
        )
    elif found:
        titles = ("STATE", "SCOPE", "KEY", "DIRECTION", "STEPS", "TOUCHED", "ID")
        display.print_table(titles, [_row(*one) for one in found], elastic=(1, 2))
    else:
        click.echo("No sagas.", err=True)
    if more:
        click.echo(f"There are more than these {limit}; use --limit to show more.", err=True)


def _row(record: Record, now: int, journal: Journal) -> list[str]:
    return [
        state_text(record, now),
        record.scope,
        record.key,
        "undone" if journal.undone else journal.direction.value,
        " ".join(f"{PROGRESS_SIGNS[line.progress]}{line.name}" for line in journal.entries),
        display.span(now - record.updated_at),
        f"id:{record.id.hex()[:SHORT_ID]}",
    ]


def as_json(journal: Journal) -> dict[str, Any]:
    """Return the journal without the results, which are the application's."""
    return {
        "direction": journal.direction.value,
        "undone": journal.undone,
        "error_type": journal.error_type,
        "error": journal.error,
        "steps": [{name: getattr(line, name) for name in STEP_FIELDS} for line in journal.entries],
    }
