"""List records for operators, newest first: by their last claim."""

from __future__ import annotations

from onceward.stores import sql_reading

newest = sql_reading.newest
oldest_pending = sql_reading.oldest_pending
count_unfinished = sql_reading.count_unfinished
