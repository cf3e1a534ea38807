"""`onceward check` evaluates the alert rules; `onceward rules` exports them for Prometheus, with a dashboard."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import click
from msgspec.structs import asdict

from onceward.client.alerts import Alert, send_alerts
from onceward.client.sync import Once
from onceward.engine.events import Event
from onceward.errors import ConfigurationError, StoreUnavailable
from onceward.observe.figures import figures, operations_without_counters
from onceward.observe.monitoring_files import grafana_dashboard, prometheus_rules
from onceward.observe.rules import RULES, Broken, Figures
from onceward.observe.rules import check as broken_rules
from onceward.observe.thresholds import DURATIONS, Thresholds
from onceward.protocol.counters import CounterTotals
from onceward.protocol.ports import Store
from onceward.runtime.threads import run

from . import display
from .alert_url import AlertNotSent, check_url, post_alert
from .exit_codes import Exit
from .open_store import opened_store, url_for_alerts
from .program import common_options, current_settings, print_error, program, setting_option, store_url, wants_json
from .settings import thresholds

RULES_WITHOUT_COUNTERS = tuple(rule.name for rule in RULES if not rule.by_counters)
RULES_WITH_COUNTERS = tuple(rule.name for rule in RULES if rule.by_counters)
NOT_YET_WRITTEN = (
    "Workers write counters every minute and when they close the client, so a killed worker loses some counts."
)
TODO = (
    "Enable counters in the programs that use these scopes, with Once(…, counters=True), and check again. "
    f"{NOT_YET_WRITTEN}"
)
NOT_COUNTED_WARNING = (
    "no counters found, so only the rules about records were checked; enable counters with Once(…, counters=True). "
    f"{NOT_YET_WRITTEN}"
)
MAX_NAMED_SCOPES = 10  # scopes in a sentence; JSON lists all of them
STDERR = 2  # so that the output of the alert command does not mix with ours
ALERT_TIMEOUT = 60.0  # seconds; then the alert counts as failed, and the next check retries it


@program.command("check")
@click.option(
    "--alert", "command", metavar="COMMAND", help="Run this command for each broken rule, described on its stdin."
)
@click.option(
    "--alert-url",
    "url",
    metavar="URL",
    envvar="ONCEWARD_ALERT_URL",
    help="Send each broken rule to this https URL, as JSON; also $ONCEWARD_ALERT_URL.",
)
@setting_option(
    "--app", metavar="APP", help="With an alert: the app that remembers which alerts were sent.  [default: default]"
)
@common_options
def check_rules(command: str | None, url: str | None) -> int:
    """Check the alert rules. Exit code 1: at least one is broken; the output says what to do.

    Exit code 0: none of the checked rules is broken; the output lists what could be checked. The rules parked,
    failed_final, stuck_schedules and old_pending read records; the others use counters. Scopes that have records but
    no counters in the last 30 days are listed as not checked, with what to do; that alone does not change the exit
    code. In JSON: broken, checked and not_checked, the latter two with the names of rules and scopes. Tenants of an
    operation are combined.

    Thresholds are in onceward.toml; `onceward rules` shows them. With --alert, a command runs for each broken rule,
    once in 24 h per rule and scope, on any number of machines. If all PARKED or failed records of a scope are settled,
    the next one sends a new alert at once. If the command fails, the next check runs it again. Its environment has
    ONCEWARD_RULE, ONCEWARD_SCOPE, ONCEWARD_FIGURE and ONCEWARD_ALERT_STORE (the URL without secrets). It runs without
    a shell: no pipes, no variables, no `~`; if you need those, use a script, or sh -c '…'.

    With --alert-url, each broken rule is posted as JSON, by the same limits. Slack and similar tools show its
    field `text`. The URL may be a secret, so prefer the environment variable; messages name only its host.

    \b
    Examples, for cron:
      onceward check -o table || true
      onceward check --alert "mail -s Onceward ops@example.com" > /dev/null
      ONCEWARD_ALERT_URL=https://hooks.slack.com/services/… onceward check > /dev/null
    """
    limits = thresholds()
    url = None if not url else check_url(url)
    with opened_store(store_url()) as store:
        measured = run(figures(store, limits))
        coverage = _coverage(store, measured.tally)
    found = broken_rules(measured, limits)
    if wants_json():
        broken = [{**asdict(one), "runbook": one.runbook} for one in found]
        display.print_json({"broken": broken, **coverage.document()})
        if not coverage.counted:
            print_error(NOT_COUNTED_WARNING)
    else:
        _print_report(found, coverage)
    _send_alerts(command, url, measured, limits)
    return Exit.ATTENTION if found else Exit.OK


class Coverage(NamedTuple):
    """Which scopes could be checked: those with counters, those without, or why the latter could not be listed."""

    counted: Sequence[str]
    uncounted: Sequence[str]
    error: str = ""

    def document(self) -> dict[str, Any]:
        """Return the coverage as JSON, always with the same keys."""
        left_out = bool(self.uncounted or self.error or not self.counted)
        why = self.error or ("nothing was counted in 30 days" if left_out else "")
        rules = [rule.name for rule in RULES] if self.counted else list(RULES_WITHOUT_COUNTERS)
        return {
            "checked": {"rules": rules, "scopes": list(self.counted)},
            "not_checked": {
                "rules": list(RULES_WITH_COUNTERS) if left_out else [],
                "scopes": list(self.uncounted),
                "why": why,
                "todo": TODO if left_out and not self.error else "",
            },
        }

    def sentences(self) -> list[str]:
        """Return sentences about what was not checked, and what to do."""
        if self.error:
            return [f"Scopes without counters could not be listed: {self.error}"]
        if not self.uncounted:
            return [] if self.counted else [TODO]
        more = len(self.uncounted) - MAX_NAMED_SCOPES
        named = ", ".join(self.uncounted[:MAX_NAMED_SCOPES]) + (f" and {more} more" if more > 0 else "")
        only = _listed(RULES_WITHOUT_COUNTERS)
        where = f"{_scope_count(self.uncounted)} had no counters in the last 30 days"
        return [f"{where}, so only {only} were checked there ({named}).", TODO]


def _coverage(store: Store, tally: CounterTotals) -> Coverage:
    counted = tally.by_operation().scopes
    try:
        return Coverage(counted, run(operations_without_counters(store, tally)))
    except StoreUnavailable as error:  # too many records to scan in time: report what was found
        return Coverage(counted, (), str(error))


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _scope_count(names: Sequence[str]) -> str:
    return f"{len(names)} scope" if len(names) == 1 else f"{len(names)} scopes"


def _print_report(found: Sequence[Broken], coverage: Coverage) -> None:
    """Print a paragraph per broken rule, uncut, because it says what to do."""
    for one in found:
        where = f" in {one.scope}" if one.scope else ""
        click.secho(display.cut(f"{one.rule}{where}", display.MAX_LINE_WIDTH), bold=True, color=display.color_mode())
        for sentence in (f"{one.said}.", one.todo, f"More: {one.runbook}"):
            click.echo(f"  {display.cut(sentence, display.MAX_LINE_WIDTH)}")
    if found:
        broken = len({one.rule for one in found})
        click.echo(f"{broken} of {len(RULES)} rules {'is' if broken == 1 else 'are'} broken.")
    elif coverage.counted:
        click.echo(f"All {len(RULES)} rules hold for {_scope_count(coverage.counted)}.")
    else:
        which = f"of {len(RULES)} rules only {_listed(RULES_WITHOUT_COUNTERS)} could be checked"
        click.echo(f"No counters found: {which}, and they hold.")
    for sentence in coverage.sentences():
        click.echo(display.cut(sentence, display.MAX_LINE_WIDTH))


def _send_alerts(command: str | None, url: str | None, measured: Figures, limits: Thresholds) -> None:
    """Run the command and post to the URL. Sent alerts are recorded separately for each."""
    store = url_for_alerts(store_url())
    channels: list[tuple[str, Alert]] = []
    if command is not None:
        channels.append(("", partial(_run_command, _split_command(command), store)))
    if url is not None:
        channels.append(("url", partial(post_alert, url, store)))
    with ExitStack() as each:  # if one fails, the other is still used
        for channel, send in reversed(channels):
            each.callback(_send_to, channel, send, measured, limits)


def _send_to(channel: str, send: Alert, measured: Figures, limits: Thresholds) -> None:
    failures = Failures(send)
    with Once(store_url(), app=current_settings()["app"].value) as once:
        once.subscribe(failures.on_event)
        run(send_alerts(once, measured, failures.send, limits, channel))


class Failures:
    """Sends alerts, and prints why one was not sent."""

    def __init__(self, send: Alert) -> None:
        self._send = send
        self._reason = ""

    def send(self, broken: Broken) -> None:
        try:
            self._send(broken)
        except AlertNotSent as error:
            self._reason = str(error)
            raise

    def on_event(self, event: Event) -> None:
        if event.name == "failed":
            reason, self._reason = self._reason or event.error, ""
            print_error(f"the alert {event.key} was not sent ({reason}); the next check retries it")


def _run_command(words: Sequence[str], store: str, broken: Broken) -> None:
    facts = {"RULE": broken.rule, "SCOPE": broken.scope, "FIGURE": f"{broken.figure:g}", "ALERT_STORE": store}
    variables = {**os.environ, **{f"ONCEWARD_{name}": value for name, value in facts.items()}}
    text = f"{broken}\nMore: {broken.runbook}\nStore: {store}\n"
    program = _program_name(words)
    try:
        ended = subprocess.run(  # noqa: S603 (the user asked for it)
            words, input=text.encode(), stdout=STDERR, env=variables, timeout=ALERT_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        raise AlertNotSent(f"{program} did not end within {ALERT_TIMEOUT:g} s") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise AlertNotSent(f"{program} cannot be run: {why}") from None
    if ended.returncode < 0:
        raise AlertNotSent(f"{program} was killed by signal {-ended.returncode}")
    if ended.returncode:
        raise AlertNotSent(f"{program} exited with code {ended.returncode}")


def _program_name(words: Sequence[str]) -> str:
    """Return the name of the program for messages. Its arguments, a URL or `TOKEN=…` may be secret."""
    program = words[0]
    return "the command of --alert" if "=" in program or ":/" in program else program


def _split_command(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigurationError(f"--alert cannot be parsed: {error}") from error
    if not words:
        raise ConfigurationError("--alert is empty", hint='pass a command, such as --alert "mail -s Onceward ops"')
    return words


@program.command("rules")
@click.option("--prometheus", "form", flag_value="prometheus", help="Print an alert file for Prometheus.")
@click.option("--grafana", "form", flag_value="grafana", help="Print a dashboard to import into Grafana.")
@common_options
def show_rules(form: str | None) -> None:
    """Show the thresholds of the rules, or export the rules for Prometheus or the dashboard.

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
        display.print_json(_thresholds_as_json(limits))
    else:
        rows = [[name, str(value)] for name, value in _thresholds_as_json(limits).items()]
        display.print_table(("THRESHOLD", "LAST GOOD VALUE"), rows, elastic=(1,))


def _thresholds_as_json(limits: Thresholds) -> dict[str, Any]:
    found = asdict(limits)
    for name in DURATIONS:
        found[name] = display.span(found[name])
    return {**found, "replays_expected": list(limits.replays_expected)}
