"""The bars (performance targets) as data, and the verdict of a measurement about a bar."""

from __future__ import annotations

from typing import Literal, NamedTuple

from bench.paired import Comparison, Ratio

FAR = 1.3
"""A miss by more than this factor is a clear failure. A smaller miss must be explained by a profile."""


class Bar(NamedTuple):
    """`at least`: Onceward is this many times as fast as the other side. `at most`: it takes this many times as long.

    `of`: wall-clock time, or the CPU time of this process.
    """

    sense: Literal["at least", "at most"]
    limit: float
    of: Literal["wall", "cpu"] = "wall"

    def __str__(self) -> str:
        return f"{'≥' if self.sense == 'at least' else '≤'} {self.limit:g} ×"


class Verdict(NamedTuple):
    """`ratio` is in the sense of the bar. `miss` is the factor by which it was missed; 1 or less means met."""

    ratio: Ratio
    miss: float
    certain: bool

    @property
    def met(self) -> bool:
        return self.miss <= 1

    @property
    def far(self) -> bool:
        return self.miss > FAR

    def __str__(self) -> str:
        text = "met" if self.met else f"missed by {self.miss:.2f} ×"
        return text if self.certain else f"{text}, but the interval includes the bar"


def at_least(limit: float) -> Bar:
    return Bar("at least", limit)


def at_most(limit: float) -> Bar:
    return Bar("at most", limit)


def of_cpu(bar: Bar) -> Bar:
    return bar._replace(of="cpu")


BARS: dict[str, Bar] = {
    "memory @once, fresh, against dogpile memory": at_least(1.3),
    "memory @once, replay, against dogpile memory": at_least(1),
    "memory @once, fresh, against dogpile memory_pickle": at_least(1),
    "memory @once, replay, against dogpile memory_pickle": at_least(1),
    "memory @once, fresh, against exactly_once with a lease": at_least(1),
    "memory ready key, fresh, against dict + lock": at_most(5),
    "memory ready key, replay, against dict + lock": at_most(6),
    "sqlite FULL, fresh, against bare statements": at_most(1.2),
    "sqlite FULL, replay, against bare statements": at_most(1.8),
    "sqlite NORMAL, fresh, against bare statements": at_most(1.6),
    "sqlite NORMAL, replay, against bare statements": at_most(1.8),
    "sqlite 64 threads, against a shared connection": at_least(3),
    "sqlite 64 threads, against a connection per thread": at_least(20),
    "sqlite 64 tasks, against one at a time": at_least(8),
    "payload key of 1 KB, against json.dumps + sha256": at_least(3),
    "memory at a million keys, fresh, against a thousand": at_most(1.5),
    "memory at a million keys, replay, against a thousand": at_most(1.5),
    "sqlite at a million keys, fresh, against a thousand": at_most(1.5),
    "sqlite at a million keys, replay, against a thousand": at_most(1.5),
    "sqlite FULL, newest of events, against a bare upsert": at_most(1.3),
    "sqlite NORMAL, newest of events, against a bare upsert": at_most(1.3),
    "postgres, newest of events, against a bare upsert": at_most(1.3),
    "postgres, fresh, against bare psycopg": at_most(1.1),
    "postgres, replay, against bare psycopg": at_most(1.1),
    "postgres 64 tasks, fresh, against bare asyncpg": at_least(3),
    "postgres 64 tasks, replay, against bare asyncpg": at_least(3),
    "postgres 64 tasks, replay, against asyncpg insert + select": at_least(3),
    "postgres 8 threads, against bare psycopg": at_least(1),
    "postgres 64 threads, against bare psycopg": at_least(2.5),
    "redis, fresh, against bare redis-py": at_most(1.3),
    "redis, replay, against bare redis-py": at_most(1.3),
    "redis 8 threads, fresh, against bare redis-py": at_least(2),
    "redis 64 tasks, fresh, against bare redis.asyncio": at_least(3),
    "nats, batches of 100, against no guard": at_least(0.7),
    "redis streams, batches of 100, against no guard": at_least(0.7),
    **{
        f"{storage}{callers}, {kind}, against {peer}": at_least(1)
        for kind in ("fresh", "replay")
        for storage, callers, peers in (
            ("redis", "", ("idemkit", "powertools", "dogpile redis", "exactly_once")),
            ("redis", " 64 threads", ("powertools", "dogpile redis", "exactly_once")),
            ("redis", " 64 tasks", ("idemkit",)),
            ("postgres", "", ("idemkit", "exactly_once", "DBOS")),
            ("postgres", " 64 threads", ("exactly_once", "DBOS")),
            ("postgres", " 64 tasks", ("idemkit",)),
        )
        for peer in peers
    },
    "http, fresh, against the bare app": of_cpu(at_most(1.6)),
    "http, replay, against the bare app": of_cpu(at_most(1.1)),
    "http, no key, against the bare app": of_cpu(at_most(1.03)),
    **{
        f"http, fresh, against {peer}": of_cpu(at_least(1))
        for peer in ("idemkit", "asgi-idempotency-header", "fastapi-idempotency-key", "idemptx")
    },
}

"""The bars: at least as fast as every other library, and within a factor of the bare drivers. One engine for all stores
is easier to read than the earlier special cases, but slower. So several bars are lower than they were for those."""

WITHOUT_BAR = (
    "memory @once, replay, against exactly_once with a lease",
    "sqlite FULL, fresh, against a lean table",
    "sqlite FULL, replay, against a lean table",
    "sqlite NORMAL, fresh, against a lean table",
    "sqlite NORMAL, replay, against a lean table",
    "sqlite FULL, newest of events with message ids, against a bare upsert",
    "sqlite NORMAL, newest of events with message ids, against a bare upsert",
    "postgres, newest of events with message ids, against a bare upsert",
    "postgres pool, one thread, against psycopg_pool",
    "postgres pool, 64 tasks, against psycopg_pool",
    "redis 8 threads, replay, against bare redis-py",
    "redis 64 tasks, replay, against bare redis.asyncio",
    "redis, newest of events, against a bare script",
    "redis, newest of events with message ids, against a bare script",
    "nats, batches of 100, nothing but the queue, against no guard",
    "redis streams, batches of 100, nothing but the queue, against no guard",
    "http, replay, against idemkit",
    "http, replay, against asgi-idempotency-header",
    "http, replay, against idemptx",
    "an event, counted by scope, against not counted",
    "memory with counters, fresh, against without",
    "memory with counters, replay, against without",
)
"""Measured without a target: a replay takes no lease, and a table of six columns keeps none of our promises."""


def judge(bar: Bar, found: Comparison) -> Verdict:
    """Judge by the median. The verdict is certain if the whole interval is on the same side of the bar."""
    measured = found.wall if bar.of == "wall" else found.cpu
    if bar.sense == "at least":
        ratio = measured.inverse()
        miss, ends = bar.limit / ratio.median, (ratio.low >= bar.limit, ratio.high >= bar.limit)
    else:
        ratio = measured
        miss, ends = ratio.median / bar.limit, (ratio.low <= bar.limit, ratio.high <= bar.limit)
    return Verdict(ratio, miss, certain=ends[0] == ends[1])
