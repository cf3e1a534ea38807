"""`onceward check`: do the rules hold? `onceward rules`: the same rules for Prometheus, and a dashboard."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from typing import Any, NamedTuple

import click
from msgspec.structs import asdict

from onceward.client.alerts import alert_jobs, send_all
from onceward.client.sync import Once
from onceward.engine.events import Event
from onceward.errors import ConfigurationError, StoreUnavailable
from onceward.observe.figures import figures, uncounted
from onceward.observe.monitoring_files import grafana_dashboard, prometheus_rules
from onceward.observe.rules import RULES, Broken, Thresholds
from onceward.observe.rules import check as broken_rules
from onceward.protocol.counters import CounterTotals
from onceward.protocol.ports import Store
from onceward.runtime.bridge import run

from . import display
from .exit_codes import Exit
from .open_store import opened
from .program import chosen, common, complain, flag, program, store_url, wants_json
from .settings import thresholds

NEEDS_NONE = tuple(rule.name for rule in RULES if not rule.by_counters)
NEEDS_COUNTERS = tuple(rule.name for rule in RULES if rule.by_counters)
TODO = "Let the programs that work there count, with Once(…, counters=True), and ask again."
UNCOUNTED = "nothing is counted here, so only old_pending was checked; programs count with Once(…, counters=True)"
MOST_NAMED = 10  # scopes in a sentence for people; JSON has all of them
STDERR = 2  # where what a command prints does not mix with ours
LONGEST_ALERT = 60.0  # seconds; then it counts as failed, and the next check tries again


@program.command("check")
@click.option("--alert", "command", metavar="COMMAND", help="Run it for each broken rule, which comes on its stdin.")
@flag("--app", metavar="APP", help="With --alert: the app that remembers which alerts were sent.  [default: default]")
@common
def check_rules(command: str | None) -> int:
    """Look whether the rules hold. Exit code 1: at least one is broken; what to do is printed with it.

    Exit code 0: no rule is broken as far as could be checked, and it is told how far that is. All rules but old_pending
    go by counters: scopes that have records, but of which nothing was counted in 30 days, are named as not checked,
    with what to do. That alone is no failure. In JSON: broken, checked and not_checked, the latter two with the names
    of rules and scopes. Tenants of an operation are taken together.

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
        reach = _reach(store, seen.tally)
    found = broken_rules(seen, limits)
    if wants_json():
        broken = [{**asdict(one), "runbook": one.runbook} for one in found]
        display.print_json({"broken": broken, **reach.document()})
        if not reach.counted:
            complain(UNCOUNTED)
    else:
        _tell(found, reach)
    if command is not None and found:
        _alert(command, found, limits)
    return Exit.ATTENTION if found else Exit.OK


class Reach(NamedTuple):
    """How far the rules could be looked at: scopes with counters, those without, or why these cannot be told."""

    counted: Sequence[str]
    uncounted: Sequence[str]
    untold: str = ""

    def document(self) -> dict[str, Any]:
        """For programs: the same shape whether anything was left out or not."""
        left_out = bool(self.uncounted or self.untold or not self.counted)
        why = self.untold or ("nothing was counted in 30 days" if left_out else "")
        rules = [rule.name for rule in RULES] if self.counted else list(NEEDS_NONE)
        return {
            "checked": {"rules": rules, "scopes": list(self.counted)},
            "not_checked": {
                "rules": list(NEEDS_COUNTERS) if left_out else [],
                "scopes": list(self.uncounted),
                "why": why,
                "todo": TODO if left_out and not self.untold else "",
            },
        }

    def sentences(self) -> list[str]:
        """For people: what was not checked, and what to do about it."""
        if self.untold:
            return [f"Whether there are scopes without counters could not be told: {self.untold}"]
        if not self.uncounted:
            return [] if self.counted else [TODO]
        more = len(self.uncounted) - MOST_NAMED
        named = ", ".join(self.uncounted[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        only = " and ".join(NEEDS_NONE)
        where = f"In {_scopes(self.uncounted)} nothing was counted in 30 days"
        return [f"{where}: there only {only} was checked ({named}).", TODO]


def _reach(store: Store, tally: CounterTotals) -> Reach:
    counted = tally.by_operation().scopes
    try:
        return Reach(counted, run(uncounted(store, tally)))
    except StoreUnavailable as error:  # many records, and little time: what was found is told all the same
        return Reach(counted, (), str(error))


def _scopes(names: Sequence[str]) -> str:
    return f"{len(names)} scope" if len(names) == 1 else f"{len(names)} scopes"


def where_to_read(one: Broken) -> str:
    """Whoever installed by pip has no such file: it is said whose it is."""
    return f"Step by step: {one.runbook} in the source of Onceward, which pip does not install"


def _tell(found: Sequence[Broken], reach: Reach) -> None:
    """For people: a paragraph a rule, in full, for it says what to do."""
    for one in found:
        where = f" in {one.scope}" if one.scope else ""
        click.secho(display.cut(f"{one.rule}{where}", display.LONGEST_FACT), bold=True, color=display.modes())
        for sentence in (f"{one.said}.", one.todo, where_to_read(one)):
            click.echo(f"  {display.cut(sentence, display.LONGEST_FACT)}")
    if found:
        broken = len({one.rule for one in found})
        click.echo(f"{broken} of {len(RULES)} rules {'is' if broken == 1 else 'are'} broken.")
    elif reach.counted:
        click.echo(f"All {len(RULES)} rules hold for {_scopes(reach.counted)}.")
    else:
        click.echo(f"Nothing was counted: of {len(RULES)} rules only old_pending could be checked, and it holds.")
    for sentence in reach.sentences():
        click.echo(display.cut(sentence, display.LONGEST_FACT))


def _alert(command: str, found: Sequence[Broken], limits: Thresholds) -> None:
    words = _words(command)

    def send(broken: Broken) -> None:
        facts = {"RULE": broken.rule, "SCOPE": broken.scope, "FIGURE": f"{broken.figure:g}"}
        variables = {**os.environ, **{f"ONCEWARD_{name}": value for name, value in facts.items()}}
        text = f"{broken}\n{where_to_read(broken)}\n"
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
