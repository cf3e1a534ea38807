"""Idempotent bulk loads: batches of rows merged into a table of a warehouse, once per load id."""

from __future__ import annotations

from .lookup import Lookup
from .open_warehouse import open_warehouse
from .port import ComparesRows, Loaded, MergeResult, Warehouse
from .table import Table

__all__ = ["ComparesRows", "Loaded", "Lookup", "MergeResult", "Table", "Warehouse", "open_warehouse"]
