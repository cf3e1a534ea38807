"""Compare all stored records in one batch: pairs are found on DuckDB or Spark, then loaded into the database.

1. Write the values and blocking keys of all records to a file.
2. Splink finds the pairs that may be one person (`splink_pairs`).
3. In one transaction, compare these pairs again with all rules, and divide the records into people. A record that was
   added or changed since step 1 is compared as usual, with what the index finds.

The result depends on the stored records only, so running it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from .batch_state import MAX_PER_COMPLETE_BLOCK, MAX_PER_PARTIAL_BLOCK
from .fields import Preset
from .model import Model
from .preparation import NormalForm, PreparedRecord
from .reindex import relink, stored_records
from .similarity import Similarity
from .splink_pairs import ReadPairs, find_pairs
from .splink_settings import row
from .tables import Database, Tables

LARGE_BLOCKS: Final = "SELECT block, count(*) FROM {t}onceward_blocking GROUP BY block HAVING count(*) > ?"
NUMBER_SIZE: Final = 8
DIGEST_SIZE: Final = 8  # bytes

_encode = msgspec.json.Encoder().encode


@contextmanager
def find_similar_pairs(database: Database, preset: Preset, model: Model, backend: str) -> Iterator[SimilarPairs]:
    """Find the pairs of stored records that may be one person. They are available until the block ends."""
    with TemporaryDirectory(prefix="onceward-") as name:
        folder = Path(name)
        rows, digests = folder / "rows.ndjson", folder / "digests"
        with database.reading() as tables:
            _write_rows(tables, preset, rows, digests)
        with find_pairs(rows, preset, model, backend, folder) as read:
            yield SimilarPairs(preset, read, digests)


class SimilarPairs:
    """Pairs that were found at some moment, and a file with the digests of the values that the records had then."""

    def __init__(self, preset: Preset, read: ReadPairs, digests: Path) -> None:
        self._preset = preset
        self._read = read
        self._digests = digests

    def load(self, tables: Tables, similarity: Similarity, now: int, progress: Callable[[int], None]) -> int:
        """Compare the pairs with all rules, and divide the records into people. Return the number of records."""
        written = _read_digests(self._digests)
        grouped = groupby(self._read(), key=itemgetter(0))
        next_digest, next_pairs = next(written, None), next(grouped, None)

        def find(number: int, record: PreparedRecord) -> Sequence[int] | None:
            nonlocal next_digest, next_pairs
            while next_digest is not None and next_digest[0] < number:
                next_digest = next(written, None)
            while next_pairs is not None and next_pairs[0] < number:
                next_pairs = next(grouped, None)
            if next_digest != (number, _digest(record.form)):
                return None  # added or changed since
            if next_pairs is None or next_pairs[0] != number:
                return ()
            return [other for _, other in next_pairs[1]]

        return relink(tables, self._preset, similarity, now, find=find, progress=progress)


def _write_rows(tables: Tables, preset: Preset, path: Path, digests: Path) -> None:
    """Write the rows for Splink, and the digests of the values."""
    large: dict[int, int] = dict(tables.run(LARGE_BLOCKS, MAX_PER_PARTIAL_BLOCK))
    with path.open("wb") as lines, digests.open("wb") as entries:
        for batch in stored_records(tables, preset):
            for number, one in batch:
                lines.write(_encode(row(number, one.form, _usable_blocks(one, large))) + b"\n")
                entries.write(number.to_bytes(NUMBER_SIZE, "big") + _digest(one.form))


def _usable_blocks(one: PreparedRecord, large: dict[int, int]) -> Iterator[int]:
    """Yield the blocking keys that few records share. For the others, there are narrower ones (see `blocking`)."""
    for block in one.blocks.complete:
        if large.get(block, 0) <= MAX_PER_COMPLETE_BLOCK:
            yield block
    for block in one.blocks.partial:
        if block not in large:
            yield block


def _digest(form: NormalForm) -> bytes:
    return blake2b("\0".join(form).encode("utf-8", "surrogatepass"), digest_size=DIGEST_SIZE).digest()


def _read_digests(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        while entry := file.read(NUMBER_SIZE + DIGEST_SIZE):
            yield int.from_bytes(entry[:NUMBER_SIZE], "big"), entry[NUMBER_SIZE:]
