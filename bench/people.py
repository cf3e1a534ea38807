"""Accuracy and speed of matching people: `python -m bench --only people [--quick] [-o json]`.

Uses the default fields, `onceward.people.PERSON`. The records of a data set arrive one after the other, as in an
import, and each is decided immediately. Then all pairs of records are counted: those that truly are one person, and
those that were matched. It also compares the confidence of the decisions with how often they were correct.
"""

from __future__ import annotations

import json
import platform
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from bench import people_peers, people_speed
from bench.people_company import Directory
from bench.people_data import FEBRL, HOW, Known, Maker, fake_1000, febrl
from onceward.people import Decision, People
from onceward.people.match_types import SIMILARITY

EDGES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999, 1.0000001)
BATCH_SIZE = 1000


class Quality(NamedTuple):
    """The result for one set. `accepted`: matches by similarity at 0.9 or above; `right`: how many are correct."""

    name: str
    records: int
    entities: int
    people: int
    precision: float
    recall: float
    f1: float
    accepted: int
    right: int
    asked: int
    reliability: list[tuple[float, float, int, float, float]]
    """Low, high, decisions, mean confidence, share of correct ones."""


def main(*, quick: bool, as_json: bool) -> int:
    found = [measured(name, records) for name, records in sets(quick=quick)]
    peers = [] if quick else people_peers.measured([name for name in FEBRL if febrl(name) is not None])
    speed = people_speed.speeds(quick=quick)
    if as_json:
        document = {
            "python": platform.python_version(),
            "quality": [one._asdict() for one in found],
            "peers": [one._asdict() for one in peers],
            "speed": speed,
            "quick": quick,
        }
        print(json.dumps(document, indent=2))
        return 0
    _print(found, peers, speed)
    return 0


def sets(*, quick: bool) -> list[tuple[str, list[Known]]]:
    """Return the febrl sets, if installed, and generated ones: registers, and lists of organisations."""
    names = ["febrl1"] if quick else list(FEBRL)
    found = [(name, records) for name in names if (records := febrl(name)) is not None]
    found.append(("fake_1000", fake_1000()))
    size = 300 if quick else 3_000
    found.append(("generated", Maker(1).records(size)))
    found.append(("organisations", Directory(7).records(size)))
    if not quick:
        found.append(("generated, worse", Maker(2, error_rate=2.0).records(size)))
        found.append(("generated, clean", Maker(3, error_rate=0.2).records(size)))
        found.append(("few names", Maker(5, few_names=True).records(size)))
    return found


def measured(name: str, records: Sequence[Known]) -> Quality:
    with People("sqlite://:memory:") as people:
        decisions: list[Decision] = []
        for start in range(0, len(records), BATCH_SIZE):
            decisions += people.add_many(one.record for one in records[start : start + BATCH_SIZE])
        clusters = [[(part.source, part.record) for part in person.contributions] for person in people]
    entity_of = {(one.record.source, one.record.id): one.entity for one in records}
    together = Counter(len(cluster) for cluster in clusters)
    truly = Counter(Counter(one.entity for one in records).values())
    hits = sum(_pairs(count) for cluster in clusters for count in Counter(entity_of[one] for one in cluster).values())
    claimed, real = (sum(_pairs(size) * times for size, times in sizes.items()) for sizes in (together, truly))
    judged = list(_judged(records, decisions))
    accepted = [true for confidence, true in judged if confidence >= 0.9]
    return Quality(
        name=name,
        records=len(records),
        entities=sum(truly.values()),
        people=len(clusters),
        precision=hits / claimed if claimed else 1.0,
        recall=hits / real if real else 1.0,
        f1=2 * hits / (claimed + real),
        accepted=len(accepted),
        right=sum(accepted),
        asked=sum(one.action == "to_review" for one in decisions),
        reliability=_reliability(judged),
    )


def _pairs(size: int) -> int:
    return size * (size - 1) // 2


def _judged(records: Sequence[Known], decisions: Sequence[Decision]) -> list[tuple[float, bool]]:
    """Return the confidence that the record belongs to the most similar person, and whether it does."""
    entities: dict[str, set[str]] = defaultdict(set)
    judged = []
    for one, decision in zip(records, decisions, strict=True):
        if decision.rule == SIMILARITY or decision.candidate is not None:
            candidate = decision.candidate or decision.person or ""
            sure = 1 - decision.confidence if decision.action == "created" else decision.confidence
            judged.append((sure, one.entity in entities[candidate]))
        entities[decision.person or ""].add(one.entity)
    return judged


def _reliability(judged: Sequence[tuple[float, bool]]) -> list[tuple[float, float, int, float, float]]:
    rows = []
    for low, high in pairwise(EDGES):
        inside = [(sure, true) for sure, true in judged if low <= sure < high]
        if inside:
            mean = sum(sure for sure, _ in inside) / len(inside)
            share = sum(true for _, true in inside) / len(inside)
            rows.append((low, min(high, 1.0), len(inside), mean, share))
    return rows


# ── output ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _print(found: Sequence[Quality], peers: Sequence[people_peers.Peer], speed: dict[str, Any]) -> None:
    if not any(one.name in FEBRL for one in found):
        print(f"the febrl sets are missing: {HOW}")
    print(f"{'set':<18}{'records':>9}{'people':>8}{'found':>8}{'precision':>11}{'recall':>9}{'F1':>9}"
          f"{'accepted':>10}{'true':>9}{'asked':>7}")  # fmt: skip
    for one in found:
        share = one.right / one.accepted if one.accepted else 1.0
        print(f"{one.name:<18}{one.records:>9}{one.entities:>8}{one.people:>8}{one.precision:>11.4f}{one.recall:>9.4f}"
              f"{one.f1:>9.4f}{one.accepted:>10}{share:>9.4f}{one.asked:>7}")  # fmt: skip
    print("\nreliability: the mean confidence, and the share of correct decisions")
    for one in found:
        print(
            f"{one.name}: "
            + ", ".join(f"{row[0]:g}–{row[1]:g}: {row[3]:.3f} → {row[4]:.3f} ({row[2]})" for row in one.reliability)
        )
    for peer in peers:
        print(f"{peer.name} on {peer.set}: F1 {peer.f1:.4f} (precision {peer.precision:.4f}, recall {peer.recall:.4f})")
    print()
    people_speed.print_speeds(speed)
