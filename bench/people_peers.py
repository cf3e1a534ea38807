"""Splink on the same sets, if it is installed (`pip install splink`). It sees all records at once and learns from them.

Comparisons and blocking rules follow its documentation for such fields. Its parameters are estimated from each set.
Pairs with a probability of 0.9 or more are joined.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

from bench.people_data import Known, febrl

ACCEPT = 0.9
COMPARED: dict[str, tuple[str, list[Any]]] = {
    **dict.fromkeys(("given_name", "surname", "city"), ("words", [0.92, 0.8])),
    **dict.fromkeys(("date_of_birth", "national_id"), ("digits", [1, 2])),
    **dict.fromkeys(("street", "street_2", "email"), ("words", [0.9])),
    **dict.fromkeys(("postcode", "phone"), ("digits", [1])),
    "region": ("digits", []),
}
"""How each field is compared: the thresholds of Jaro-Winkler similarity, or the number of typos."""

BLOCKING = (
    ("national_id",),
    ("email",),
    ("date_of_birth",),
    ("given_name", "surname"),
    ("surname", "postcode"),
    ("given_name", "postcode"),
    ("street", "city"),
)
TRAINING = (("date_of_birth",), ("national_id",), ("given_name", "surname"))


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
    linker = trained(records)
    pairs = linker.inference.predict(threshold_match_probability=ACCEPT)
    found: list[dict[str, Any]] = linker.clustering.cluster_pairwise_predictions_at_threshold(
        pairs, ACCEPT
    ).as_record_list()
    return found


def pair_probabilities(records: Sequence[Known]) -> Iterator[tuple[int, int, float]]:
    """Yield the positions of two records, and the probability that they are of one person, for all compared pairs."""
    for row in trained(records).inference.predict(threshold_match_probability=0.0).as_record_list():
        yield int(row["unique_id_l"]), int(row["unique_id_r"]), row["match_probability"]


def trained(records: Sequence[Known]) -> Any:
    """Return Splink's linker, trained on these records without labels."""
    import pyarrow as pa
    from splink import Linker, SettingsCreator, block_on
    from splink.backends.duckdb import DuckDBAPI

    logging.getLogger("splink").setLevel(logging.ERROR)
    fields = [name for name in COMPARED if any(one.record.fields.get(name) for one in records)]
    rows = [
        {"unique_id": n, **{field: one.record.fields.get(field) or None for field in fields}}
        for n, one in enumerate(records)
    ]
    schema = pa.schema([("unique_id", pa.int64()), *((field, pa.string()) for field in fields)])
    settings = SettingsCreator(
        link_type="dedupe_only",
        comparisons=[_comparison(name) for name in fields],
        blocking_rules_to_generate_predictions=[block_on(*rule) for rule in BLOCKING if {*rule} <= {*fields}],
        probability_two_random_records_match=1 / len(rows),
    )
    table = pa.Table.from_pylist(rows, schema=schema)
    linker = Linker(DuckDBAPI().register(table), settings, log_level=logging.ERROR)
    linker.training.estimate_u_using_random_sampling(max_pairs=2e6, seed=1)
    for rule in TRAINING:
        if {*rule} <= {*fields}:
            linker.training.estimate_parameters_using_expectation_maximisation(
                block_on(*rule), record_sample_proportion=1.0
            )
    return linker


def _comparison(name: str) -> Any:
    from splink import comparison_library as comparing

    how, thresholds = COMPARED[name]
    if how == "words":
        return comparing.JaroWinklerAtThresholds(name, thresholds)
    return comparing.DamerauLevenshteinAtThresholds(name, thresholds) if thresholds else comparing.ExactMatch(name)


def _pairs(size: int) -> int:
    return size * (size - 1) // 2
