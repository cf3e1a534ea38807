"""The shop of these examples. Its charges and Onceward's records are in one SQLite file, so they commit together.

Four task queues deliver the same work, `charge`: `with_celery`, `with_dramatiq`, `with_rq`, `with_taskiq`. Each module
says how to start its worker. `python -m examples.tasks` lists the charges.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

from onceward import Claim

DATABASE = os.environ.get("SHOP_DATABASE", "shop.db")
BROKER = os.environ.get("REDIS_URL", "redis://localhost:6379/0")

# A dead worker holds its key until its lease expires. The next worker waits longer than that, and takes over.
LEASE = os.environ.get("SHOP_LEASE", "30s")
WAIT = "60s"


def connect() -> sqlite3.Connection:
    shop = sqlite3.connect(DATABASE, isolation_level=None, timeout=30)
    shop.execute("CREATE TABLE IF NOT EXISTS charges (order_id INTEGER, cents INTEGER)")
    return shop


def write_charge(claim: Claim, order_id: int, cents: int) -> str:
    """Write the charge and complete the record in one transaction: a worker may die before or after it."""
    receipt = f"receipt {order_id}: {cents / 100:.2f}"
    with closing(connect()) as shop, shop:
        shop.execute("BEGIN IMMEDIATE")
        shop.execute("INSERT INTO charges VALUES (?, ?)", (order_id, cents))
        claim.complete_in(shop, receipt)
    return receipt


def charges() -> list[tuple[int, int]]:
    with closing(connect()) as shop:
        return shop.execute("SELECT order_id, cents FROM charges ORDER BY order_id").fetchall()
