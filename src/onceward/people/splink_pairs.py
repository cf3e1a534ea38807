"""Find similar pairs with Splink, on DuckDB (one machine) or on Spark (a cluster)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, get_args

from onceward.errors import ConfigurationError, MissingExtra

from .fields import Preset
from .model import Model
from .splink_settings import BLOCKS, NUMBER, column, comparisons

Backend = Literal["duckdb", "spark"]
BACKENDS: Final[tuple[str, ...]] = get_args(Backend)

FETCH_SIZE: Final = 10_000
NO_THRESHOLD: Final = 0.0

ReadPairs = Callable[[], Iterator[tuple[int, int]]]
"""Returns both directions of each pair, ordered by the first number."""


def find_pairs(
    rows: Path, preset: Preset, model: Model, backend: str, folder: Path
) -> AbstractContextManager[ReadPairs]:
    """Find the pairs that may be one person. `rows` is an NDJSON file of `splink_settings.row`.

    Intermediate results are written to `folder`.
    """
    if backend not in BACKENDS:
        raise ConfigurationError(f"there is no backend {backend!r}", hint=f"choose from {', '.join(BACKENDS)}")
    if find_spec("splink") is None:
        raise MissingExtra("linking in one batch needs splink", hint='pip install "onceward[splink]"')
    threshold = NO_THRESHOLD if preset.rules else preset.ask  # a declared rule may accept an improbable pair
    find = _on_duckdb if backend == "duckdb" else _on_spark
    return find(rows, preset, model, threshold, folder)


def _settings(preset: Preset, model: Model) -> Any:
    from splink import SettingsCreator, block_on

    return SettingsCreator(
        link_type="dedupe_only",
        unique_id_column_name=NUMBER,
        comparisons=[*comparisons(preset, model)],
        blocking_rules_to_generate_predictions=[block_on(BLOCKS, arrays_to_explode=[BLOCKS])],
        probability_two_random_records_match=model.same,
        retain_matching_columns=False,
    )


def _predict(table: Any, preset: Preset, model: Model, threshold: float) -> Any:
    """Return Splink's table of pairs at or above the threshold."""
    from splink import Linker

    logging.getLogger("splink").setLevel(logging.ERROR)
    linker = Linker(table, _settings(preset, model), log_level=logging.ERROR)
    return linker.inference.predict(threshold_match_probability=threshold)


def _symmetric(table: str) -> str:
    one, other = f"{NUMBER}_l", f"{NUMBER}_r"
    return f"SELECT {one} AS a, {other} AS b FROM {table} UNION ALL SELECT {other}, {one} FROM {table} ORDER BY 1, 2"  # noqa: S608


@contextmanager
def _on_duckdb(rows: Path, preset: Preset, model: Model, threshold: float, folder: Path) -> Iterator[ReadPairs]:
    import duckdb
    from splink.backends.duckdb import DuckDBAPI

    columns = {NUMBER: "BIGINT", **{column(n): "VARCHAR" for n in range(len(preset.slots))}, BLOCKS: "VARCHAR[]"}
    with duckdb.connect(str(folder / "pairs.duckdb")) as connection:  # on disk, so that memory is bounded
        connection.read_json(str(rows), columns=columns, format="newline_delimited").create("records")
        found = _predict(DuckDBAPI(connection).register("records"), preset, model, threshold)

        def read() -> Iterator[tuple[int, int]]:
            cursor = connection.cursor().execute(_symmetric(found.physical_name))
            while several := cursor.fetchmany(FETCH_SIZE):
                yield from several

        yield read


@contextmanager
def _on_spark(rows: Path, preset: Preset, model: Model, threshold: float, folder: Path) -> Iterator[ReadPairs]:
    try:
        spark: Any = import_module("pyspark.sql")  # imported by its name: type checkers need not have it installed
        backend: Any = import_module("splink.backends.spark")
    except ImportError:
        raise MissingExtra("linking on Spark needs pyspark", hint="pip install 'pyspark<4'") from None
    session = spark.SparkSession.builder.appName("onceward people link").getOrCreate()  # or the caller's own session
    texts = ", ".join(f"{column(n)} STRING" for n in range(len(preset.slots)))
    schema = f"{NUMBER} LONG, {texts}, {BLOCKS} ARRAY<STRING>"
    session.sparkContext.setCheckpointDir(str(folder / "checkpoints"))
    records = session.read.schema(schema).json(str(rows))
    api = backend.SparkAPI(spark_session=session, register_udfs_automatically=False)
    found = _predict(api.register(records), preset, model, threshold)

    def read() -> Iterator[tuple[int, int]]:
        for one in session.sql(_symmetric(found.physical_name)).toLocalIterator():
            yield one["a"], one["b"]

    yield read
