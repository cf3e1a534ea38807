"""`onceward check`: do the rules hold? `onceward rules`: the same rules for Prometheus, and a dashboard."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from typing import Any

import click
from msgspec.structs import asdict

from onceward.alerts import alert_jobs, send_all
from onceward.bridge import run
from onceward.client import Once
from onceward.core.counting import figures
from onceward.errors import ConfigurationError
from onceward.observe.events import Event
from onceward.observe.exported import grafana_dashboard, prometheus_rules
from onceward.observe.rules import RULES, Broken, Thresholds
from onceward.observe.rules import check as broken_rules

from . import display
from .codes import Exit
from .place import opened
from .program import APP, chosen, common, complain, program, store_url, wants_json
from .settings import thresholds

UNCOUNTED = "no counters here, so only old_pending was looked at; programs count with Once(…, counters=True)"
STDERR = 2  # where what a command prints does not mix with ours
LONGEST_ALERT = 60.0  # seconds; then it counts as failed, and the next check tries again


@program.command("check")
@click.option("--alert", "command", metavar="COMMAND", help="Run it for each broken rule, which comes on its stdin.")
@APP
@common
def check_rules(command: str | None) -> int:
    """Look whether the rules hold. Exit code 1: at least one is broken; what to do is printed with it.

    Thresholds are in onceward.toml; `onceward rules` shows them. With --alert, a command is run for each broken rule,
    once in 24 h per rule and scope, on however many machines and however often this is called; one that fails is tried
    again by the next check. It finds ONCEWARD_RULE, ONCEWARD_SCOPE and ONCEWARD_FIGURE in its environment. It is run
    without a shell: no pipes, no variables, no `~`; for those, name a script, or sh -c '…'.

    \b
    Examples, for cron:
      onceward check -o table || true
      onceward check --alert "mail -s Onceward ops@example.com" > /dev/null
    """
    limits = thresholds()
    with opened(store_url()) as store:
        seen = run(figures(store, limits))
    found = broken_rules(seen, limits)
    if wants_json():
        display.print_json([{**asdict(one), "runbook": one.runbook} for one in found])
    else:
        _tell(found, counted=bool(seen.tally.hours))
    if not seen.tally.hours:
        complain(UNCOUNTED)
    if command is not None and found:
        _alert(command, found, limits)
    return Exit.ATTENTION if found else Exit.OK


def _tell(found: Sequence[Broken], *, counted: bool) -> None:
    """For people: a paragraph a rule, in full, for it says what to do."""
    for one in found:
        where = f" in {one.scope}" if one.scope else ""
        click.secho(display.cut(f"{one.rule}{where}", display.LONGEST_FACT), bold=True, color=display.colours())
        for sentence in (f"{one.said}.", one.todo, f"See {one.runbook}"):
            click.echo(f"  {display.cut(sentence, display.LONGEST_FACT)}")
    if found:
        click.echo(f"{len(found)} of {len(RULES)} rules are broken.")
    elif counted:
        click.echo(f"All {len(RULES)} rules hold.")
    else:
        click.echo(f"Nothing was counted: of {len(RULES)} rules only old_pending could be looked at, and it holds.")


def _alert(command: str, found: Sequence[Broken], limits: Thresholds) -> None:
    words = _words(command)

    def send(broken: Broken) -> None:
        facts = {"RULE": broken.rule, "SCOPE": broken.scope, "FIGURE": f"{broken.figure:g}"}
        variables = {**os.environ, **{f"ONCEWARD_{name}": value for name, value in facts.items()}}
        text = f"{broken}\nSee {broken.runbook}\n"
        subprocess.run(  # noqa: S603 (it is what was asked for)
            words, input=text.encode(), stdout=STDERR, env=variables, timeout=LONGEST_ALERT, check=True
        )

    def told(event: Event) -> None:
        if event.name == "failed":
            complain(f"the alert {event.key} was not sent ({event.error}); the next check tries again")

    with Once(store_url(), app=chosen()["app"].value) as once:
        once.subscribe(told)
        run(send_all(once, alert_jobs(once, found, send, limits)))


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigurationError(f"--alert cannot be read: {error}") from error
    if not words:
        raise ConfigurationError("--alert is empty", hint='give a command, such as --alert "mail -s Onceward ops"')
    return words


@program.command("rules")
@click.option("--prometheus", "form", flag_value="prometheus", help="As an alert file for Prometheus.")
@click.option("--grafana", "form", flag_value="grafana", help="The dashboard for Grafana, to be imported.")
@common
def show_rules(form: str | None) -> None:
    """Show the thresholds of the rules, or the rules for Prometheus, or the dashboard.

    \b
    Examples:
      onceward rules
      onceward rules --prometheus > /etc/prometheus/rules/onceward.yml
      onceward rules --grafana > onceward-dashboard.json
    """
    limits = thresholds()
    if form == "prometheus":
        click.echo(prometheus_rules(limits), nl=False)
    elif form == "grafana":
        click.echo(grafana_dashboard(), nl=False)
    elif wants_json():
        display.print_json(_shown(limits))
    else:
        rows = [[name, str(value)] for name, value in _shown(limits).items()]
        display.table(("THRESHOLD", "LAST VALUE THAT IS WELL"), rows, elastic=(1,))


def _shown(limits: Thresholds) -> dict[str, Any]:
    found = asdict(limits)
    for name in ("old_pending_age", "alert_window"):
        found[name] = display.span(found[name])
    return {**found, "replays_expected": list(limits.replays_expected)}
