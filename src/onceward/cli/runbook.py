"""`onceward runbook`: print a runbook of the installed package."""

from __future__ import annotations

import click

from onceward.observe.monitoring_files import runbooks
from onceward.protocol.suggest import did_you_mean

from . import display
from .exit_codes import Exit
from .program import OUTPUT, CommandError, program, wants_json


@program.command("runbook")
@click.argument("name", required=False)
@OUTPUT
def runbook(name: str | None) -> None:
    """Print the runbook of an alert rule: what it means and what to do. Without NAME, list the runbooks.

    \b
    Examples:
      onceward runbook
      onceward runbook parked
    """
    texts = runbooks()
    if name is None:
        if wants_json():
            display.print_json(list(texts))
        else:
            click.echo("\n".join(texts))
        return
    known = name.lower().replace("_", "-")
    if known not in texts:
        raise CommandError(f"there is no runbook {name!r} → {did_you_mean(known, texts, 'runbooks are')}", Exit.ABSENT)
    if wants_json():
        display.print_json({"name": known, "text": texts[known]})
    else:
        click.echo(f"{known}\n\n{texts[known]}")
