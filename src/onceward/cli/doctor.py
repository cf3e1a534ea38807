"""`onceward doctor`: is the store well, and does anything wait for a person?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import click

from onceward.engine.lock_record import is_lock
from onceward.protocol.capabilities import ReportsHealth
from onceward.protocol.ports import Filter, Store
from onceward.protocol.record import Record, RecordState
from onceward.protocol.transitions import Row, row_of
from onceward.runtime.bridge import run
from onceward.stores.sqlite.schema import LATEST
from onceward.stores.sqlite.url import parse

from . import display
from .exit_codes import Exit
from .find import each
from .open_store import SEARCH, TIMEOUT, file_facts, is_sqlite, opened
from .program import common, program, store_url, wants_json
from .retry_spans import SpanFinding, findings, parsed
from .settings import retry_spans

SKEW = 2.0  # seconds; below it, leases and windows are as they should be
OK, NOTE, ATTENTION = "ok", "note", "attention"


class Check(NamedTuple):
    """What was looked at, how it is, and the figures."""

    name: str
    status: str
    detail: str


@program.command()
@click.option(
    "--retry-span",
    "declared",
    multiple=True,
    metavar="SCOPE=DURATION",
    help="For how long a sender redelivers; may be repeated. Better kept in a file: see above.",
)
@common
def doctor(declared: tuple[str, ...]) -> int:
    """Look at the store and at what waits for a person.

    Exit code 0: all is well. 1: something needs attention. 69, 74: the store cannot be used, one line says why. A Redis
    that evicts keys or keeps nothing through a restart, which programs refuse, is examined: what is unsafe, and what
    to do, is told beside the rest.

    Where a sender redelivers for longer than a record answers, a late delivery runs again. Declare how long that is, by
    scope or by operation, and windows that are shorter are told:

    \b
      [tool.onceward.retry_spans]      in pyproject.toml, or [retry_spans] in onceward.toml
      "shop/charge" = "3d"

    \b
    Example, for cron, which mails what it prints:
      onceward doctor -o table || true
    """
    url = store_url()
    spans = {name: setting.value for name, setting in retry_spans(parsed(declared)).items()}
    checks = _durability(url) if is_sqlite(url) else []
    begun = time.monotonic()
    with opened(url, although_unsafe=True) as store:
        checks = [*_clock(store, begun), *checks, *_remarks(store), *_records(store, spans)]
    if wants_json():
        display.print_json([check._asdict() for check in checks])
    else:
        display.table(("CHECK", "STATUS", "DETAIL"), checks, elastic=(0, 2), whole=True)
    return Exit.ATTENTION if any(check.status == ATTENTION for check in checks) else Exit.OK


def _durability(url: str) -> list[Check]:
    path, settings = parse(url)
    facts = file_facts(path)
    version = facts.get("schema_version")
    synchronous = settings.get("synchronous", "FULL").upper()
    kept = "a power cut" if synchronous != "NORMAL" else "a crash of the process, but not surely a power cut"
    mode = str(facts["journal_mode"])
    return [
        Check("schema", OK if version == LATEST else NOTE, f"version {version}; this Onceward writes {LATEST}"),
        Check(
            "journal", OK if mode == "wal" else NOTE, f"{mode}" + ("" if mode == "wal" else "; opening makes it wal")
        ),
        Check("synchronous", OK if synchronous != "NORMAL" else NOTE, f"{synchronous}: survives {kept}"),
    ]


def _remarks(store: Store) -> list[Check]:
    if not isinstance(store, ReportsHealth):
        return []
    said = run(store.examine(timeout=TIMEOUT))
    return [Check(one.name, OK if one.well else ATTENTION if one.unsafe else NOTE, one.detail) for one in said]


def _clock(store: Store, begun: float) -> list[Check]:
    before = time.time()
    now = run(store.scan(Filter(), cursor=None, limit=1, timeout=SEARCH)).now / 1_000_000
    after = time.time()
    skew = max(before - now, now - after, 0.0)
    took = (time.monotonic() - begun) * 1000
    return [
        Check("store", OK, f"{store.name} answered after {took:.0f} ms"),
        Check("clock", OK if skew < SKEW else ATTENTION, f"the store's clock differs from ours by {skew:.1f} s"),
    ]


def _records(store: Store, spans: Mapping[str, str]) -> list[Check]:
    counts = run(store.counts(timeout=SEARCH))
    total = sum(counts.values())
    parked = sum(number for (_, state), number in counts.items() if state is RecordState.PARKED)
    silent = [is_lock(record) for record, now in _pending(store) if row_of(record, now) is Row.PENDING_LAPSED]
    locks = sum(silent)
    lapsed = len(silent) - locks
    look = "see onceward ls --state"
    free = [Check("lapsed locks", NOTE, f"{locks}; whoever wants one next takes it over")] if locks else []
    where = f"; {look} PENDING, where their state is PENDING lapsed"
    return [
        Check("records", OK, f"{total}"),
        Check("lapsed", ATTENTION if lapsed else OK, f"{lapsed}" + (where if lapsed else "")),
        *free,
        Check("parked", ATTENTION if parked else OK, f"{parked}" + (f"; {look} PARKED" if parked else "")),
        *(_window(finding) for finding in findings(store, counts, spans)),
    ]


def _pending(store: Store) -> Iterator[tuple[Record, int]]:
    return each(store, Filter(states=(RecordState.PENDING,)))


def _window(finding: SpanFinding) -> Check:
    status = ATTENTION if finding.short else OK if finding.known else NOTE
    return Check(f"window {finding.declared}", status, finding.detail)
