"""Idempotent bulk loads: merge batches of rows into a warehouse table, once per load id.

Read `port.py` first, then `load.py`. Each engine is a module: DuckDB, SQLite, PostgreSQL, BigQuery.
"""

from __future__ import annotations

from .lookup import Lookup
from .open_warehouse import open_warehouse
from .port import ComparesRows, Loaded, Merged, Warehouse
from .table import Table

__all__ = ["ComparesRows", "Loaded", "Lookup", "Merged", "Table", "Warehouse", "open_warehouse"]
