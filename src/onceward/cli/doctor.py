"""`onceward doctor`: check the health of the store, and list what needs an operator."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import click

from onceward.administration.explain import clock_set_back
from onceward.client.controls import MODE_VARIABLE
from onceward.engine.lock_record import is_lock
from onceward.engine.rollout import parse_mode
from onceward.observe.figures import read_totals
from onceward.observe.record_figures import record_figures
from onceward.observe.rules import RULES, todo_text
from onceward.observe.thresholds import DAY
from onceward.protocol.hints import cli_command
from onceward.protocol.ports import Filter, Store
from onceward.protocol.record import RecordState
from onceward.protocol.transitions import Row, row_of
from onceward.runtime.threads import run
from onceward.stores.sqlite.schema import LATEST
from onceward.stores.sqlite.url import parse

from . import display
from .exit_codes import Exit
from .find import iter_records
from .open_store import SEARCH_TIMEOUT, TIMEOUT, file_facts, is_sqlite, opened_store
from .program import common_options, program, store_url, wants_json
from .retry_spans import SpanFinding, findings, parse_flags
from .settings import retry_spans, thresholds

MAX_CLOCK_SKEW = 2.0  # seconds; less does not affect leases and windows
PERIODS = {"failed_final": " in a day", "unknown": " in a day", "dead_letters": " in a day"}
OK, NOTE, ATTENTION = "ok", "note", "attention"


class Check(NamedTuple):
    """The result of one check."""

    name: str
    status: str
    detail: str


@program.command()
@click.option(
    "--retry-span",
    "declared",
    multiple=True,
    metavar="SCOPE=DURATION",
    help="How long a sender redelivers; may be repeated. Prefer a settings file, see above.",
)
@common_options
def doctor(declared: tuple[str, ...]) -> int:
    """Check the store, and list what needs an operator.

    Exit code 0: everything is fine. 1: something needs attention. 69, 74: the store cannot be used; one line says why.
    A Redis that evicts keys or loses data on restart, which programs refuse, is checked, too: the output says what is
    unsafe and what to do.

    If a sender redelivers for longer than the window of a record, a late delivery runs again. Declare how long each
    sender redelivers, by scope or operation, and shorter windows are reported:

    \b
      [tool.onceward.retry_spans]      in pyproject.toml, or [retry_spans] in onceward.toml
      "shop/charge" = "3d"

    \b
    Example, for cron, which mails the output:
      onceward doctor -o table || true
    """
    url = store_url()
    spans = {name: setting.value for name, setting in retry_spans(parse_flags(declared)).items()}
    checks = _durability(url) if is_sqlite(url) else []
    started = time.monotonic()
    with opened_store(url, allow_unsafe=True) as store:
        checks = [_mode(), *_clock(store, started), *checks, *_health_checks(store), *_records(store, spans)]
    if wants_json():
        display.print_json([check._asdict() for check in checks])
    else:
        display.print_table(("CHECK", "STATUS", "DETAIL"), checks, elastic=(0, 2), whole=True)
    return Exit.ATTENTION if any(check.status == ATTENTION for check in checks) else Exit.OK


def _mode() -> Check:
    """Return the mode that the environment sets for clients, here as in programs that are started like this one."""
    mode = parse_mode(os.environ.get(MODE_VARIABLE) or "enforce", f"${MODE_VARIABLE}")
    details = {
        "enforce": f"enforce, unless a program sets another one: ${MODE_VARIABLE} does not change it",
        "observe": f"observe (${MODE_VARIABLE}): nothing is skipped; duplicates run, and are counted as would_skip",
        "off": f"off (${MODE_VARIABLE}): nothing is claimed or recorded; unset it to protect work again",
    }
    return Check("mode", OK if mode == "enforce" else NOTE if mode == "observe" else ATTENTION, details[mode])


def _durability(url: str) -> list[Check]:
    path, settings = parse(url)
    facts = file_facts(path)
    version = facts.get("schema_version")
    synchronous = settings.get("synchronous", "FULL").upper()
    survives = "a power cut" if synchronous != "NORMAL" else "a crash of the process, but perhaps not a power cut"
    mode = str(facts["journal_mode"])
    return [
        Check("schema", OK if version == LATEST else NOTE, f"version {version}; this Onceward writes {LATEST}"),
        Check(
            "journal",
            OK if mode == "wal" else NOTE,
            f"{mode}" + ("" if mode == "wal" else "; opening the store changes it to wal"),
        ),
        Check("synchronous", OK if synchronous != "NORMAL" else NOTE, f"{synchronous}: survives {survives}"),
    ]


def _health_checks(store: Store) -> list[Check]:
    if store.health is None:
        return []
    reports = run(store.health.examine(timeout=TIMEOUT))
    return [Check(one.name, OK if one.ok else ATTENTION if one.unsafe else NOTE, one.detail) for one in reports]


def _clock(store: Store, started: float) -> list[Check]:
    before = time.time()
    now = run(store.scan(Filter(), cursor=None, limit=1, timeout=SEARCH_TIMEOUT)).now / 1_000_000
    after = time.time()
    skew = max(before - now, now - after, 0.0)
    took = (time.monotonic() - started) * 1000
    return [
        Check("store", OK, f"{store.name} answered in {took:.0f} ms"),
        Check(
            "clock", OK if skew < MAX_CLOCK_SKEW else ATTENTION, f"the store's clock differs from ours by {skew:.1f} s"
        ),
    ]


def _records(store: Store, spans: Mapping[str, str]) -> list[Check]:
    counts = run(store.counts(timeout=SEARCH_TIMEOUT))
    total = sum(counts.values())
    lapsed_is_lock: list[bool] = []
    long_leases: list[tuple[int, str]] = []  # by how much the clock was set back, and the key
    for record, now in iter_records(store, Filter(states=(RecordState.PENDING,))):
        if row_of(record, now) is Row.PENDING_LAPSED:
            lapsed_is_lock.append(is_lock(record))
        elif set_back := clock_set_back(record, now):
            long_leases.append((set_back, record.key))
    locks = sum(lapsed_is_lock)
    lapsed = len(lapsed_is_lock) - locks
    free = [Check("lapsed locks", NOTE, f"{locks}; the next caller can acquire them")] if locks else []
    where = "; run `onceward ls --state PENDING`, where their state is PENDING lapsed"
    return [
        Check("records", OK, f"{total}"),
        Check("lapsed", ATTENTION if lapsed else OK, f"{lapsed}" + (where if lapsed else "")),
        *free,
        *_long_leases(long_leases),
        *_problems(store),
        *(_window(finding) for finding in findings(store, counts, spans)),
    ]


def _long_leases(found: Sequence[tuple[int, str]]) -> list[Check]:
    """Return a check if renewals are dated in the future: the store's clock was set back, so leases last too long."""
    if not found:
        return []
    set_back, key = max(found)
    detail = f"{len(found)}: the store's clock was set back by at least {display.span(set_back)}, so the leases of "
    detail += f"stopped workers last longer. If the owner is gone: `{cli_command('release', key)} --force`"
    return [Check("long leases", ATTENTION, detail)]


def _problems(store: Store) -> list[Check]:
    """Return a check for each rule that needs an operator, regardless of the thresholds of `onceward check`."""
    limits = thresholds()
    found = run(record_figures(store, limits))
    numbers: dict[str, int] = {
        "parked": sum(found.parked.values()),
        "failed_final": sum(found.failed_final.values()),
        "stuck_schedules": sum(found.stuck_schedules.values()),
    }
    if store.counters is not None:
        tally = run(read_totals(store))
        numbers |= {
            "unknown": tally.total("unknown", hours=DAY),
            "dead_letters": tally.total("dead_lettered", hours=DAY),
        }
    todo = {rule.name: todo_text(rule, limits, "") for rule in RULES}
    return [
        Check(
            name.replace("_", " "),
            ATTENTION if number else OK,
            f"{number}{PERIODS.get(name, '')}" + (f". {todo[name]}" if number else ""),
        )
        for name, number in numbers.items()
    ]


def _window(finding: SpanFinding) -> Check:
    status = ATTENTION if finding.short else OK if finding.known else NOTE
    return Check(f"window {finding.declared}", status, finding.detail)
