"""A day of a shop, for the pictures of the console."""

from __future__ import annotations

import math
from typing import Any

from onceward import Once
from onceward.protocol.counters import HOUR, CounterRow, Counts
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.registry import open_store
from tests.console.shop import attempt

TIMEOUT = 30.0


def fill(url: str) -> None:
    """Store what a shop leaves behind in a day."""
    with Once(url, app="shop") as once:

        @once(key="charge:{n}", name="charge")
        def charge(n: int) -> dict[str, Any]:
            if n % 9 == 4:
                raise ValueError(f"card of order {n} was declined")
            return {"order": n, "cents": 1990}

        @once(key="invoice:{n}", name="invoice")
        def invoice(n: int) -> str:
            return f"2026-{n}.pdf"

        for n in range(1000, 1040):
            attempt(charge, n)
            attempt(invoice, n)
        for tenant, numbers in (("acme", (1041, 1042)), ("globex", (1043,))):

            @once.using(tenant=tenant)(key="payout:{n}", name="payout", after_crash="park")
            def payout(n: int) -> str:
                raise TimeoutError(f"the bank did not answer about payout {n} within 30 s")

            for n in numbers:
                attempt(payout, n)
    run(save_counts(url))


async def save_counts(url: str) -> None:
    """Store the counters of a day with a busy afternoon and a bank that failed for two hours."""
    store = open_store(url)
    await store.open(ThreadRuntime())
    assert store.counters is not None
    now = await store.counters.save_counts([], timeout=TIMEOUT) // HOUR
    rows = [CounterRow(b"pictures", now - ago, 1, counts_of(ago)) for ago in range(24)]
    await store.counters.save_counts(rows, timeout=TIMEOUT)
    await store.close()


def counts_of(ago: int) -> Counts:
    """Return the counts of the hour that is this long ago."""
    busy = 260 + round(180 * math.sin(ago / 24 * 2 * math.pi + 1) ** 2) + ago * 37 % 50
    counts: Counts = {
        "shop/charge": {"executed": busy, "replayed": busy // 25, "failed": 80 if ago in (6, 7) else ago % 4},
        "shop/invoice": {"executed": busy // 4, "replayed": busy // 70},
        "shop/payout@acme": {"executed": busy // 40, **({"parked": 2} if ago == 0 else {})},
        "shop/payout@globex": {"executed": busy // 60, **({"parked": 1} if ago == 0 else {})},
    }
    return counts
