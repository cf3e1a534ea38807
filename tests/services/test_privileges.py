"""A database user that may not create tables: a service whose tables exist starts and works."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from uuid import uuid4

import pytest

from examples.submissions.__main__ import brokers, opened_desk
from examples.submissions.bureau import bureau
from onceward.errors import StoreError
from onceward.people import People, SourceRecord
from onceward.warehouse import Table, open_warehouse
from tests.integration.test_submissions_example import submission
from tests.servers.postgres import Postgres, execute, new_database
from tests.services.killed_systems import count

TABLE = Table(name="documents", columns={"hash": "text"}, key=("hash",))


class Database(NamedTuple):
    """A database with its owner, and a user that may only read and write rows."""

    owner: str
    user: str

    def grant(self, name: str) -> None:
        execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {name}", url=self.owner)


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Database]:
    name = f"user_{uuid4().hex[:12]}"
    owner = new_database(postgres, name)
    execute(f"CREATE ROLE {name} LOGIN", url=owner)
    yield Database(owner, owner.replace("postgres@", f"{name}@"))
    execute(f"DROP DATABASE {name} WITH (FORCE)", url=postgres.url)
    execute(f"DROP ROLE {name}", url=postgres.url)


def name_in(url: str) -> str:
    return url.rpartition("/")[2]


def test_submissions_are_processed_by_a_user_that_may_not_create_tables(database: Database) -> None:
    with bureau(calm=True) as remote:
        with opened_desk(database.owner, remote.url):
            database.grant(name_in(database.owner))
        with opened_desk(database.user, remote.url) as desk:
            assert desk.process.outcome(submission()).executed
            assert len(desk.quotes.rows()) == 1


def test_rows_are_loaded_by_a_user_that_may_not_create_tables(database: Database) -> None:
    with pytest.raises(StoreError, match="lacks a privilege"):
        open_warehouse(database.user)
    house = open_warehouse(database.owner)
    house.prepare(TABLE)
    house.close()
    database.grant(name_in(database.owner))
    house = open_warehouse(database.user)
    house.prepare(TABLE)
    assert house.load("load 1", TABLE, [{"hash": "sha256:ab"}]).inserted == 1
    house.close()


@pytest.mark.parametrize("schema", ["insurer", "Order"])
def test_the_settings_of_the_url_hold_for_the_quotes_too(database: Database, schema: str) -> None:
    """The schema, also one in capitals or a reserved word; settings of libpq are passed on in the same way."""
    with bureau(calm=True) as remote, opened_desk(f"{database.owner}?schema={schema}&migrate=1", remote.url) as desk:
        assert desk.process.outcome(submission()).executed
    assert count(database.owner, f'"{schema}".quotes') == 1


def test_people_and_loaded_rows_are_in_the_schema_of_the_url(database: Database) -> None:
    """PostgreSQL reads Order without quotes as order, a reserved word, and Shop as shop, another schema."""
    execute('CREATE SCHEMA "Order"', url=database.owner)
    people = People(f"{database.owner}?schema=Order&migrate=1")
    people.add(SourceRecord("form", {"email": "ann@example.com"}))
    people.close()
    assert count(database.owner, '"Order".onceward_people') == 1
    house = open_warehouse(f"{database.owner}?schema=Order")
    house.prepare(TABLE)
    house.close()
    assert count(database.owner, f'"Order".{TABLE.name}') == 0


def test_a_token_of_a_broker_may_end_with_equals_signs() -> None:
    assert brokers("YWNtZQ===acme, b=globex") == {"YWNtZQ==": "acme", "b": "globex"}
