"""Store very many records with a few statements, for tests and benchmarks of the pages that operators open."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import psycopg

FIRST_TOKEN: Final = 1_700_000_000_000_000
"""Records are claimed one microsecond after the other, from this time on."""

COLUMNS: Final = "id, scope, key, token, updated_at, state, error_type, error, note"

ROWS: Final = f"""
    CASE WHEN n % 10 = 0 THEN 'shop/charge@acme' WHEN n % 40001 = 7 THEN 'shop/rare' ELSE 'shop/charge' END,
    'order:' || n, {FIRST_TOKEN} + n, {FIRST_TOKEN} + n + 5,
    CASE WHEN n % 50 = 0 THEN 'FAILED' WHEN n % 2000 = 1 THEN 'PARKED' WHEN n % 2000 = 3 THEN 'PENDING' END,
    CASE WHEN n % 100 = 0 THEN 'ValueError' WHEN n % 50 = 0 THEN 'KeyError' WHEN n % 2000 = 1 THEN 'TimeoutError' END,
    CASE WHEN n % 50 = 0 THEN 'no card for order ' || n END,
    CASE WHEN n % 3 = 0 THEN '{{"source":"file ' || (n % 500) || '"}}' END
"""

AUDIT_COLUMNS: Final = "at, verb, who, why, id, scope, key"
AUDIT_ROWS: Final = f"""
    {FIRST_TOKEN} + n + 5, 'retry', 'ann', 'the bank works again', id, scope, key
    FROM (SELECT id, scope, key, token - {FIRST_TOKEN} AS n FROM {{table}}) AS records WHERE n % 5 < 2
"""
"""Two of five records were changed manually, among them all that are parked."""

SQLITE_IDS: Final = "CAST(printf('%032x', n) AS BLOB)"
POSTGRES_IDS: Final = "convert_to(lpad(to_hex(n), 32, '0'), 'UTF8')"


def id_of(number: int) -> str:
    """Return the id of the record with this number, as operators see it."""
    return f"{number:032x}".encode().hex()


def fill_sqlite(path: Path, records: int) -> None:
    """Store the records in a file that has the tables."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA cache_size = -200000")
        database.execute(
            f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {records:d})"
            f" INSERT INTO onceward_records ({COLUMNS}) SELECT {SQLITE_IDS}, {ROWS} FROM numbers"
        )
        database.execute(
            f"INSERT INTO onceward_audit ({AUDIT_COLUMNS}) SELECT {AUDIT_ROWS.format(table='onceward_records')}"
        )


def fill_postgres(url: str, schema: str, records: int) -> None:
    """Store the records in a schema that has the tables, and let the server collect its statistics."""
    table, audit = f'"{schema}".onceward_records', f'"{schema}".onceward_audit'
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in (
            f"INSERT INTO {table} ({COLUMNS}) SELECT {POSTGRES_IDS}, {ROWS} FROM generate_series(1, {records:d}) AS n",
            f"INSERT INTO {audit} ({AUDIT_COLUMNS}) SELECT {AUDIT_ROWS.format(table=table)}",
            f"VACUUM ANALYZE {table}, {audit}",
        ):
            connection.execute(statement.encode())
