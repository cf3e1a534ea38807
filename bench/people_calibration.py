"""Whether a confidence means a probability: `python -m bench --only people-calibration [--quick] [-o json]`.

Compares all pairs of records that share a blocking key, and counts which of them truly are one person. Pairs that share
a strong key are left out: no confidence decides about them. Splink does the same on its own pairs, if it is installed,
after it was trained on the set.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import chain, combinations, pairwise
from typing import Any, NamedTuple

from bench import people_peers
from bench.people_blind import BLIND, rldata
from bench.people_data import Known, Maker, fake_1000, febrl
from onceward.people.batch_state import MAX_PER_COMPLETE_BLOCK
from onceward.people.fields import preset
from onceward.people.preparation import encode_record, prepare_record
from onceward.people.similarity import Similarity

EDGES = (0.0, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0000001)

Judged = tuple[float, bool]
"""The confidence of a pair, and whether it is of one person."""


class Bin(NamedTuple):
    """The pairs with a confidence from `low` to `high`: their mean confidence, and the share that is true."""

    low: float
    high: float
    pairs: int
    predicted: float
    observed: float


def main(*, quick: bool, as_json: bool) -> int:
    found = {name: calibration(records) for name, records in sets(quick=quick)}
    if as_json:
        shown = {
            name: {who: [one._asdict() for one in bins] for who, bins in both.items()} for name, both in found.items()
        }
        print(json.dumps({"calibration": shown, "quick": quick}, indent=2))
        return 0
    for name, both in found.items():
        print_table(name, both)
    return 0


def sets(*, quick: bool) -> Iterator[tuple[str, list[Known]]]:
    wanted: list[tuple[str, list[Known] | None]] = [
        ("fake_1000", fake_1000()),
        ("generated", Maker(1).records(300 if quick else 3_000)),
    ]
    if not quick:
        wanted += [("febrl3", febrl("febrl3")), (BLIND[1], rldata(BLIND[1]))]
    yield from ((name, records) for name, records in wanted if records is not None)


def calibration(records: Sequence[Known]) -> dict[str, list[Bin]]:
    """Return the bins of Onceward, and of Splink if it is installed."""
    found = {"Onceward": bins(compared_pairs(records))}
    if find_spec("splink") is not None:
        found["Splink"] = bins(
            (probability, records[one].entity == records[other].entity)
            for one, other, probability in people_peers.pair_probabilities(records)
        )
    return found


def compared_pairs(records: Sequence[Known]) -> Iterator[Judged]:
    """Yield the pairs that share a blocking key and no strong key, with the confidence of the default model."""
    declared = preset()
    similarity = Similarity(declared)
    prepared = [prepare_record(declared, encode_record(one.record), one.record.fields) for one in records]
    members: dict[int, list[int]] = defaultdict(list)
    for n, one in enumerate(prepared):
        for block in chain(*one.blocks):
            members[block].append(n)
    shared = (numbers for numbers in members.values() if len(numbers) <= MAX_PER_COMPLETE_BLOCK)
    for here, there in {pair for numbers in shared for pair in combinations(numbers, 2)}:
        if not {*prepared[here].keys} & {*prepared[there].keys}:
            confidence = similarity.confidence(prepared[here].form, prepared[there].form)
            yield confidence, records[here].entity == records[there].entity


def bins(judged: Iterable[Judged]) -> list[Bin]:
    pairs = list(judged)
    found = []
    for low, high in pairwise(EDGES):
        inside = [one for one in pairs if low <= one[0] < high]
        if inside:
            predicted, observed = (sum(column) / len(inside) for column in zip(*inside, strict=True))
            found.append(Bin(low, min(high, 1.0), len(inside), predicted, observed))
    return found


def print_table(name: str, both: dict[str, list[Bin]]) -> None:
    """Print a Markdown table, as the documentation has it."""
    print(f"\n{name}\n\n| confidence |" + "".join(f" {who}: pairs | predicted | true |" for who in both))
    print("|---|" + "---|---|---|" * len(both))
    for low, high in pairwise(EDGES):
        cells = (_cells(next((one for one in bins if one.low == low), None)) for bins in both.values())
        print(f"| {low:g}–{min(high, 1.0):g} |" + "".join(cells))


def _cells(one: Any) -> str:
    return " – | – | – |" if one is None else f" {one.pairs:,} | {one.predicted:.3f} | {one.observed:.3f} |"
