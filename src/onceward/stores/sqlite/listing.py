"""List records for operators, newest first.

Unfinished records are in the order of their last claims. All records together are in the order in which their keys
were first stored: an index by time would cost 19 bytes per key.
"""

from __future__ import annotations

import sqlite3

from onceward.protocol.listing import ListingFilter, ListingPage
from onceward.protocol.record import RecordState
from onceward.stores import sql_reading
from onceward.stores.sql_reading import without_waiting

from .reader import SQLiteReader

Cursor = sqlite3.Cursor


def newest(cursor: Cursor, wanted: ListingFilter, after: bytes | None, limit: int, now: int) -> ListingPage:
    return without_waiting(sql_reading.newest(SQLiteReader(cursor, now), wanted, after, limit))


def oldest_pending(cursor: Cursor, wanted: ListingFilter, limit: int, now: int) -> ListingPage:
    return without_waiting(sql_reading.oldest_pending(SQLiteReader(cursor, now), wanted, limit))


def count_unfinished(cursor: Cursor, limit: int) -> dict[RecordState, int]:
    return without_waiting(sql_reading.count_unfinished(SQLiteReader(cursor, 0), limit))
