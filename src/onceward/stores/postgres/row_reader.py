"""Decode rows in PostgreSQL's binary format with psycopg's compiled loaders."""

from __future__ import annotations

from itertools import chain
from operator import itemgetter
from typing import Any, Final

from psycopg import pq
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.pq.abc import PGresult
from psycopg.types.bool import BoolBinaryLoader
from psycopg.types.numeric import Int2BinaryLoader, Int4BinaryLoader, Int8BinaryLoader, OidBinaryLoader
from psycopg.types.string import ByteaBinaryLoader, TextBinaryLoader

from onceward.stores.sql import Row

from .values import ESCAPE, OIDS, unescape

Rows = list[Row]

_LOADERS: Final[dict[str, type[Any]]] = {
    "boolean": BoolBinaryLoader,
    "bytea": ByteaBinaryLoader,
    "bigint": Int8BinaryLoader,
    "smallint": Int2BinaryLoader,
    "integer": Int4BinaryLoader,
    "text": TextBinaryLoader,
    "xid": OidBinaryLoader,  # like an oid: four unsigned bytes
}


def _adapters() -> AdaptersMap:
    """Return a map of our own, without the loaders that the user has registered globally in psycopg."""
    adapters = AdaptersMap()
    for name, loader in _LOADERS.items():
        adapters.register_loader(OIDS[name], loader)
    return adapters


_ADAPTERS: Final = _adapters()


class PostgresRowReader:
    """Reads the rows of one statement on one connection."""

    __slots__ = ("_get_texts", "_load", "_text_columns", "width")

    def __init__(self, result: PGresult) -> None:
        types = [result.ftype(column) for column in range(result.nfields)]
        unknown = set(types).difference(OIDS.values())
        if unknown:
            raise AssertionError(f"one of our statements returns columns of unknown types: {unknown}")
        self.width = len(types)
        """The number of columns. The compiled loader expects exactly this number."""
        self._load = Transformer(_ADAPTERS)
        self._load.set_loader_types(types, pq.Format.BINARY)
        self._text_columns = [column for column, kind in enumerate(types) if kind == OIDS["text"]]
        slices = [
            slice(column, column + 1) for column in self._text_columns
        ]  # itemgetter returns a tuple for one column, too
        self._get_texts = (
            itemgetter(*(self._text_columns if len(self._text_columns) > 1 else slices)) if slices else None
        )

    def rows(self, result: PGresult) -> Rows:
        load = self._load
        load.set_pgresult(result, set_loaders=False)
        rows: Rows = load.load_rows(0, result.ntuples, tuple)
        load.set_pgresult(None, set_loaders=False)  # release it: it may be large
        if self._get_texts is not None:
            texts = chain.from_iterable(map(self._get_texts, rows))
            if not "".join(filter(None, texts)).isascii():
                return [self._unescape_row(row) for row in rows]
        return rows

    def _unescape_row(self, row: Row) -> Row:
        values = list(row)
        for column in self._text_columns:
            if values[column] and ESCAPE in values[column]:
                values[column] = unescape(values[column])
        return tuple(values)
