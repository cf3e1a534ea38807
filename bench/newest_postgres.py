"""The stream of `bench.newest` on PostgreSQL (a private one, synchronous_commit on), beside the upsert by hand.

By hand: one `INSERT … SELECT FROM unnest(…) ON CONFLICT … WHERE` a batch, prepared and binary; a statement may touch no
row twice, so only the newest of each entity in the batch is sent. With messages also one insert of the ids that were
seen. Two schemas a side, in turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from itertools import count

import psycopg

from bench.case import Case, Cases, Missing, Plan
from bench.cases_postgres import new_schema
from bench.newest import WEEK, Apply, Event, stream
from bench.paired import TURNS_OF_A, TURNS_OF_B, in_turn
from onceward import Once
from onceward.latest import Ordering
from onceward.stores.postgres import PostgresStore
from tests.servers.postgres import Postgres, found_binaries

NAMES = {
    False: "postgres, newest of events, against a bare upsert",
    True: "postgres, newest of events with message ids, against a bare upsert",
}
CREATE = (
    "CREATE SCHEMA {schema}",
    "CREATE TABLE {schema}.newest (entity text PRIMARY KEY, at bigint, number bigint, value text)",
    "CREATE TABLE {schema}.seen (message text PRIMARY KEY, expires_at bigint)",
)
UPSERT = (
    "INSERT INTO {schema}.newest AS mine SELECT * FROM unnest(%b::text[], %b::bigint[], %b::bigint[], %b::text[])"
    " ON CONFLICT (entity) DO UPDATE SET at = excluded.at, number = excluded.number, value = excluded.value"
    " WHERE (excluded.at, excluded.number) > (mine.at, mine.number)"
)
SEE = "INSERT INTO {schema}.seen SELECT message, %b FROM unnest(%b::text[]) AS one (message) ON CONFLICT DO NOTHING"

_schemas = count()


def cases(plan: Plan) -> Cases:
    if not plan.wants(*NAMES.values()):
        return
    binaries = found_binaries()
    if binaries is None:
        yield from (Missing(name, "postgresql (Debian)") for name in NAMES.values() if plan.wants(name))
        return
    server = Postgres(binaries)
    try:
        server.start()
        for messages, name in NAMES.items():
            if not plan.wants(name):
                continue
            with ExitStack() as stack:
                ours = [stack.enter_context(kept(server.url)) for _ in (0, 1)]
                bares = [stack.enter_context(by_hand(server.url, messages=messages)) for _ in (0, 1)]
                a, b = ([stream(one, messages=messages) for one in side] for side in (ours, bares))
                yield Case(name, in_turn(TURNS_OF_A, *a), in_turn(TURNS_OF_B, *b), plan.effort.stream)
    finally:
        server.remove()


@contextmanager
def kept(url: str) -> Iterator[Apply]:
    with Once(PostgresStore(url, schema=new_schema(url))) as once:
        yield once.state("trucks", max_clock_skew=None).apply_many


@contextmanager
def by_hand(url: str, *, messages: bool) -> Iterator[Apply]:
    schema = f"by_hand_{next(_schemas)}"
    upsert, see = (text.format(schema=schema).encode() for text in (UPSERT, SEE))
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        for statement in CREATE:
            cursor.execute(statement.format(schema=schema).encode())
        connection.commit()

        def apply(events: Sequence[Event]) -> None:
            newest: dict[object, tuple[object, int, int, str]] = {}
            for one in events:
                ordering = one.ordering
                assert isinstance(ordering, Ordering)
                assert isinstance(ordering.event_time, datetime)
                at, number = int(ordering.event_time.timestamp() * 1e6), ordering.sequence or 0
                before = newest.get(one.entity)
                if before is None or (at, number) > before[1:3]:
                    newest[one.entity] = one.entity, at, number, json.dumps(one.value)
            if messages:
                seen = [one.ordering.message_id for one in events]  # type: ignore[union-attr]  # as above
                cursor.execute(see, (WEEK, seen), prepare=True)
            cursor.execute(upsert, [list(column) for column in zip(*newest.values(), strict=True)], prepare=True)
            connection.commit()

        yield apply
