"""What a call on PostgreSQL costs: round trips, and bytes of log."""

from __future__ import annotations

import pytest

from onceward import Once
from onceward.protocol.requests import Complete, Renewal, Verdict
from onceward.runtime.threads import run
from onceward.stores.postgres import PostgresStore
from onceward.testing.conformance.harness import claim_request
from tests.integration.postgres_backend import claim, opened, proxy, store
from tests.servers.postgres import execute
from tests.servers.proxy import Proxy

__all__ = ["proxy", "store"]  # fixtures, re-exported so that pytest finds them


@pytest.mark.mission("B4")
def test_a_replay_is_one_round_trip_and_not_one_byte_of_log(store: PostgresStore, proxy: Proxy, schema: str) -> None:
    through = opened(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres", schema=schema)
    record = claim(through, claim_request("key")).record
    run(through.settle([Complete(record.id, record.token, record.nonce, b"x" * 5_000, b"d")], timeout=5))
    for _ in range(3):
        claim(through, claim_request("key"))  # its statement is prepared, and the pages are pruned
    exchanges, position = proxy.exchanges, written()
    for _ in range(20):
        answer = claim(through, claim_request("key"))
        assert (answer.verdict, len(answer.record.result)) == (Verdict.REPLAY, 5_000)
    assert proxy.exchanges - exchanges == 20
    assert written() == position
    run(through.close())


def test_a_fresh_call_is_two_round_trips(store: PostgresStore, proxy: Proxy, schema: str) -> None:
    with Once(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?schema={schema}", lease="60s") as once:
        once.run("ready", lambda: None)
        before = proxy.exchanges
        for number in range(5):
            once.run(f"k{number}", lambda: None)
        assert proxy.exchanges - before == 10


@pytest.mark.parametrize("number", [1, 3], ids=["alone", "in a batch"])
def test_also_what_was_renewed_or_taken_over_is_completed_in_one_round_trip(
    store: PostgresStore, proxy: Proxy, schema: str, number: int
) -> None:
    through = opened(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres", schema=schema)
    for round_name in ("first", "second"):  # its statement is prepared in the first
        keys = [f"{round_name} {one}" for one in range(number)]
        run(through.claim([claim_request(key, lease=1) for key in keys], timeout=5))
        claimed = [one.record for one in run(through.claim([claim_request(key) for key in keys], timeout=5))]
        assert [one and one.attempt for one in claimed] == [2] * number
        owned = [one for one in claimed if one is not None]
        run(through.renew([Renewal(one.id, one.token, one.nonce, 60_000_000) for one in owned], timeout=5))
        before = proxy.exchanges
        ends = [Complete(one.id, one.token, one.nonce, b"", b"") for one in owned]
        assert [one.verdict for one in run(through.settle(ends, timeout=5))] == [Verdict.OK] * number
    assert proxy.exchanges - before == 1
    run(through.close())


def written() -> int:
    [(position,)] = execute("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint")
    return int(position)
