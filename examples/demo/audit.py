"""The audit: what is really in the table, counted by plain SQL. Nothing of Onceward is asked."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import NamedTuple

TABLE = "CREATE TABLE charges (order_id INTEGER NOT NULL, amount INTEGER NOT NULL, worker INTEGER NOT NULL)"
"""No unique constraint: nothing in the database keeps an order from being charged twice."""


class Audit(NamedTuple):
    """`duplicates`: charges beyond the first; `lost`: orders without one; `wrong`: not what was ordered."""

    orders: int
    rows: int
    duplicates: int
    lost: int
    wrong: int
    ordered: int
    charged: int

    @property
    def passed(self) -> bool:
        return (
            self.rows == self.orders
            and self.ordered == self.charged
            and not (self.duplicates or self.lost or self.wrong)
        )


def create_table(database: Path) -> None:
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA journal_mode = WAL").fetchall()  # as the store does: the demo without it uses the same
    with connection:
        connection.execute(TABLE)
        connection.execute("CREATE INDEX charges_by_order ON charges (order_id)")
    connection.close()


def audit(database: Path, orders: dict[int, int]) -> Audit:
    connection = sqlite3.connect(database)
    rows = connection.execute("SELECT order_id, amount FROM charges").fetchall()
    connection.close()
    charged_orders = {order_id for order_id, _ in rows}
    return Audit(
        orders=len(orders),
        rows=len(rows),
        duplicates=len(rows) - len(charged_orders),
        lost=len(orders.keys() - charged_orders),
        wrong=sum(orders.get(order_id) != amount for order_id, amount in rows),
        ordered=sum(orders.values()),
        charged=sum(amount for _, amount in rows),
    )
