"""What a queue with at-least-once delivery sends: some orders once, many several times, none in order."""

from __future__ import annotations

import random
from typing import NamedTuple

DELIVERIES_PER_ORDER = 2.5
SHUFFLED_OVER = 40  # places by which a first delivery may move: later orders overtake earlier ones
TOGETHER = 0.5  # share of the duplicates that come right behind the original, so that two workers have both at once


class Delivery(NamedTuple):
    """One message. Deliveries of the same order have different numbers, as the copies that a queue makes have."""

    number: int
    order_id: int
    amount: int


class Traffic(NamedTuple):
    """Every order that must be charged, with its amount in cents, and the deliveries in the order of their coming."""

    orders: dict[int, int]
    deliveries: list[Delivery]


def make_traffic(deliveries: int, seed: int) -> Traffic:
    dice = random.Random(seed)
    count = max(1, int(deliveries / DELIVERIES_PER_ORDER))
    orders = {order_id: dice.randrange(100, 50_000) for order_id in range(1, count + 1)}
    first = {order_id: order_id + dice.random() * SHUFFLED_OVER for order_id in orders}
    places = [(place, order_id) for order_id, place in first.items()]
    for _ in range(deliveries - count):
        order_id = dice.randrange(1, count + 1)
        behind = 1e-6 if dice.random() < TOGETHER else dice.random() * count
        places.append((first[order_id] + behind, order_id))
    places.sort()
    return Traffic(orders, [Delivery(n, order_id, orders[order_id]) for n, (_, order_id) in enumerate(places)])
