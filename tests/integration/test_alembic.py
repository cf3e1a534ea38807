"""Alembic and our tables: autogenerate leaves them alone, and a migration can create them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from alembic.autogenerate import produce_migrations
from alembic.migration import MigrationContext
from sqlalchemy.pool import NullPool

from onceward import ConfigurationError, Once
from onceward.sqlalchemy import include_object, metadata, migration_statements
from tests.integration.postgres_connections import sqlalchemy_url
from tests.servers.postgres import URL, execute

pytestmark = [
    pytest.mark.finding("N29"),
    pytest.mark.filterwarnings("ignore:Skipped unsupported reflection of expression-based index"),
]

Place = tuple[sqlalchemy.Engine, str, str, str]  # with the dialect, the schema, and the store's URL


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Place:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    return sqlalchemy.create_engine(url, poolclass=NullPool), "sqlite", "", url


@pytest.fixture
def on_postgres(postgres: Any, schema: str) -> Place:
    engine = sqlalchemy.create_engine(sqlalchemy_url("psycopg"), poolclass=NullPool)
    execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
    return engine, "postgresql", schema, f"{os.environ[URL]}?schema={schema}"


@pytest.fixture(params=["on_sqlite", "on_postgres"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


def create(engine: sqlalchemy.Engine, dialect: str, schema: str) -> None:
    with engine.begin() as connection:
        for statement in migration_statements(dialect, schema):
            connection.exec_driver_sql(statement)


def test_a_migration_creates_tables_that_a_client_uses(place: Place) -> None:
    engine, dialect, schema, url = place
    create(engine, dialect, schema)
    with Once(url) as once:
        assert once.run("a", lambda: 7) == 7
        records = metadata(schema or None).tables[f"{schema}.onceward_records" if schema else "onceward_records"]
        with engine.connect() as connection:
            row = connection.execute(sqlalchemy.select(records)).one()
    assert (row.key, row.state, row.stored) == ("a", None, None)


def test_the_metadata_has_the_columns_of_the_database(place: Place) -> None:
    engine, dialect, schema, _ = place
    create(engine, dialect, schema)
    reflected = sqlalchemy.MetaData(schema=schema or None)
    reflected.reflect(engine, only=lambda name, _: name.startswith("onceward_"))
    ours = metadata(schema or None)
    assert set(ours.tables) == set(reflected.tables)
    for name, table in ours.tables.items():
        others = {column.name for column in reflected.tables[name].columns} - {column.name for column in table.columns}
        assert others == ({"number"} if (name, dialect) == ("onceward_latest", "sqlite") else set())
        assert {column.name for column in table.columns} <= {column.name for column in reflected.tables[name].columns}


def test_autogenerate_does_not_touch_our_tables(place: Place) -> None:
    engine, dialect, schema, _ = place
    create(engine, dialect, schema)
    theirs = sqlalchemy.MetaData(schema=schema or None)
    sqlalchemy.Table("charges", theirs, sqlalchemy.Column("id", sqlalchemy.Integer, primary_key=True))
    with engine.connect() as connection:
        found = {}
        for name, filtered in (("with", include_object), ("without", None)):
            options: dict[str, Any] = {"include_schemas": True, "include_object": filtered}
            context = MigrationContext.configure(connection, opts=options)
            operations = produce_migrations(context, theirs).upgrade_ops
            assert operations is not None
            found[name] = [str(one) for diff in operations.as_diffs() for one in ([diff] if diff else [])]
    assert not [one for one in found["with"] if "onceward_" in one]
    assert [one for one in found["with"] if "charges" in one]
    assert [one for one in found["without"] if "onceward_records" in one], "the filter is what protects them"


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="there is no dialect 'oracle'"):
        migration_statements("oracle")
    with pytest.raises(ConfigurationError, match="SQLite has no schemas"):
        migration_statements("sqlite", "shop")
