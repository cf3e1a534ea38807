"""Splink on the same sets, if it is installed (`pip install splink`). It sees all records at once and learns from them.

Comparisons and blocking rules follow its documentation for such fields. Its parameters are estimated from each set.
Pairs with a probability of 0.9 or more are joined.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

from bench.people_data import Known, febrl

ACCEPT = 0.9
FIELDS = ("given_name", "surname", "date_of_birth", "national_id", "street", "street_2", "city", "postcode", "region")


class Peer(NamedTuple):
    """The result of a peer for one set."""

    name: str
    set: str
    precision: float
    recall: float
    f1: float


def measured(sets: Sequence[str]) -> list[Peer]:
    """Return the results, or an empty list if Splink is not installed."""
    if find_spec("splink") is None:
        return []
    return [_measured(name, records) for name in sets if (records := febrl(name)) is not None]


def _measured(name: str, records: Sequence[Known]) -> Peer:
    import splink

    clusters: dict[Any, list[str]] = defaultdict(list)
    for row in _clustered(records):
        clusters[row["cluster_id"]].append(records[int(row["unique_id"])].entity)
    hits = sum(_pairs(count) for cluster in clusters.values() for count in Counter(cluster).values())
    claimed = sum(_pairs(len(cluster)) for cluster in clusters.values())
    real = sum(_pairs(count) for count in Counter(one.entity for one in records).values())
    return Peer(f"Splink {splink.__version__}", name, hits / claimed, hits / real, 2 * hits / (claimed + real))


def _clustered(records: Sequence[Known]) -> list[dict[str, Any]]:
    import pyarrow as pa
    from splink import Linker, SettingsCreator, block_on
    from splink import comparison_library as comparing
    from splink.backends.duckdb import DuckDBAPI

    logging.getLogger("splink").setLevel(logging.ERROR)
    rows = [
        {"unique_id": n, **{field: one.record.fields[field] or None for field in FIELDS}}
        for n, one in enumerate(records)
    ]
    settings = SettingsCreator(
        link_type="dedupe_only",
        comparisons=[
            *(comparing.JaroWinklerAtThresholds(name, [0.92, 0.8]) for name in ("given_name", "surname", "city")),
            *(comparing.DamerauLevenshteinAtThresholds(name, [1, 2]) for name in ("date_of_birth", "national_id")),
            *(comparing.JaroWinklerAtThresholds(name, [0.9]) for name in ("street", "street_2")),
            comparing.DamerauLevenshteinAtThresholds("postcode", [1]),
            comparing.ExactMatch("region"),
        ],
        blocking_rules_to_generate_predictions=[
            block_on("national_id"),
            block_on("date_of_birth"),
            block_on("given_name", "surname"),
            block_on("surname", "postcode"),
            block_on("given_name", "postcode"),
            block_on("street", "city"),
        ],
        probability_two_random_records_match=1 / len(rows),
    )
    linker = Linker(DuckDBAPI().register(pa.Table.from_pylist(rows)), settings, log_level=logging.ERROR)
    linker.training.estimate_u_using_random_sampling(max_pairs=2e6, seed=1)
    for rule in (block_on("date_of_birth"), block_on("national_id"), block_on("given_name", "surname")):
        linker.training.estimate_parameters_using_expectation_maximisation(rule, record_sample_proportion=1.0)
    pairs = linker.inference.predict(threshold_match_probability=ACCEPT)
    found: list[dict[str, Any]] = linker.clustering.cluster_pairwise_predictions_at_threshold(
        pairs, ACCEPT
    ).as_record_list()
    return found


def _pairs(size: int) -> int:
    return size * (size - 1) // 2
