"""The fleet: `python -m examples.fleet [--quick] [--unguarded]`.

The health of a fleet of services, as events that come late, twice and published again, to several workers at once. In
the end the table must say what somebody says who saw everything once and in order.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from examples.fleet.consumer import Consumer, Unguarded
from examples.fleet.message import Message, service_id
from examples.fleet.traffic import delivered, history, truth

EVENTS = 3_000
QUICK = 300
WORKERS = 4


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.fleet", description="Events out of order; one state.")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} events instead of {EVENTS}")
    parser.add_argument("--unguarded", action="store_true", help="the last to arrive wins: the table ends up wrong")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    dice = random.Random(chosen.seed)
    messages = history(QUICK if chosen.quick else EVENTS, dice)
    traffic = delivered(messages, dice)
    print(f"{len(messages)} events, delivered {len(traffic)} times, in any order, to {WORKERS} workers\n")
    with tempfile.TemporaryDirectory(prefix="onceward-fleet-") as folder:
        path = Path(folder) / "fleet.db"
        reasons = consume(path, traffic, Unguarded if chosen.unguarded else Consumer)
        wrong = differences(path, messages)
    for reason, number in sorted(reasons.items()):
        print(f"  {reason:<24}{number:>6}")
    print(f"  {'wrong in the table':<24}{len(wrong):>6}")
    for line in wrong:
        print(f"    {line}")
    return 1 if wrong else 0


def consume(path: Path, traffic: list[Message], kind: type[Consumer]) -> Counter[str]:
    """Each worker has a connection of its own, as if it were another process."""
    kind(path).close()

    def work(share: list[Message]) -> Counter[str]:
        with closing(kind(path)) as consumer:
            return Counter(consumer.handle(message)["reason"] for message in share)

    with ThreadPoolExecutor(WORKERS) as crew:
        return sum(crew.map(work, [traffic[n::WORKERS] for n in range(WORKERS)]), Counter())


def differences(path: Path, messages: list[Message]) -> list[str]:
    with closing(sqlite3.connect(path)) as table:
        seen = dict(table.execute("SELECT serviceId, status FROM ops_services"))
    wanted = {service_id(*service): status for service, status in truth(messages).items()}
    return [
        f"{id}: {seen.get(id)} instead of {wanted.get(id)}"
        for id in sorted({*seen, *wanted})
        if seen.get(id) != wanted.get(id)
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
