"""The stream of `bench.latest` on a private PostgreSQL server, compared with a handwritten upsert.

The server has synchronous_commit on. The handwritten code uses one `INSERT … SELECT FROM unnest(…) ON CONFLICT … WHERE`
per batch, prepared and binary. A statement cannot update a row twice, so only the newest event of each entity in the
batch is sent. With messages, it also inserts the ids. Two schemas per side, alternating.
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
from bench.latest import WEEK, Apply, Event, stream
from bench.paired import ORDER_OF_A, ORDER_OF_B, alternate
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
                ours = [stack.enter_context(with_onceward(server.url)) for _ in (0, 1)]
                bares = [stack.enter_context(by_hand(server.url, messages=messages)) for _ in (0, 1)]
                a, b = ([stream(one, messages=messages) for one in side] for side in (ours, bares))
                yield Case(name, alternate(ORDER_OF_A, *a), alternate(ORDER_OF_B, *b), plan.effort.stream)
    finally:
        server.remove()


@contextmanager
def with_onceward(url: str) -> Iterator[Apply]:
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
