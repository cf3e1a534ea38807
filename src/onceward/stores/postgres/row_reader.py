"""Rows as the server sends them, in PostgreSQL's binary format, made values by what psycopg has compiled for it."""

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

from .values import ESCAPE, OIDS, unescaped

Rows = list[Row]

_LOADERS: Final[dict[str, type[Any]]] = {
    "boolean": BoolBinaryLoader,
    "bytea": ByteaBinaryLoader,
    "bigint": Int8BinaryLoader,
    "smallint": Int2BinaryLoader,
    "integer": Int4BinaryLoader,
    "text": TextBinaryLoader,
    "xid": OidBinaryLoader,  # four bytes without a sign, both
}


def _adapters() -> AdaptersMap:
    """A map of our own: what the user has registered for all of psycopg is for other rows."""
    adapters = AdaptersMap()
    for name, loader in _LOADERS.items():
        adapters.register_loader(OIDS[name], loader)
    return adapters


_ADAPTERS: Final = _adapters()


class Reader:
    """Reads the rows of one statement on one connection."""

    __slots__ = ("_load", "_texts", "_texts_of", "width")

    def __init__(self, result: PGresult) -> None:
        types = [result.ftype(column) for column in range(result.nfields)]
        unknown = set(types).difference(OIDS.values())
        if unknown:
            raise AssertionError(f"a statement of ours shows columns of unknown types: {unknown}")
        self.width = len(types)
        """How many columns there are. What is compiled looks for no more, and for no less."""
        self._load = Transformer(_ADAPTERS)
        self._load.set_loader_types(types, pq.Format.BINARY)
        self._texts = [column for column, kind in enumerate(types) if kind == OIDS["text"]]
        alone = [slice(column, column + 1) for column in self._texts]  # of one column, too, a tuple is what is got
        self._texts_of = itemgetter(*(self._texts if len(self._texts) > 1 else alone)) if alone else None

    def rows(self, result: PGresult) -> Rows:
        load = self._load
        load.set_pgresult(result, set_loaders=False)
        rows: Rows = load.load_rows(0, result.ntuples, tuple)
        load.set_pgresult(None, set_loaders=False)  # it may be large
        if self._texts_of is not None:
            texts = chain.from_iterable(map(self._texts_of, rows))
            if not "".join(filter(None, texts)).isascii():
                return [self._unescaped(row) for row in rows]
        return rows

    def _unescaped(self, row: Row) -> Row:
        values = list(row)
        for column in self._texts:
            if values[column] and ESCAPE in values[column]:
                values[column] = unescaped(values[column])
        return tuple(values)
