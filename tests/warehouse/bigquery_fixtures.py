"""Fixtures: datasets in BigQuery's emulator, reached through a proxy that may lose answers, and warehouses on them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from onceward.warehouse import Warehouse, open_warehouse
from onceward.warehouse.bigquery import BigQueryWarehouse
from tests.servers.bigquery import BigQueryServer, shared
from tests.servers.bigquery_front import Front
from tests.warehouse.test_loads import STATEMENTS, USERS, Query


@pytest.fixture
def emulator() -> BigQueryServer:
    return shared()


@pytest.fixture
def front(emulator: BigQueryServer) -> Iterator[Front]:
    with Front(emulator.port) as front:
        yield front


@pytest.fixture
def dataset() -> str:
    return f"d{uuid.uuid4().hex[:12]}"


@pytest.fixture
def url(front: Front, dataset: str) -> str:
    return url_of(front, dataset)


def url_of(server: BigQueryServer | Front, dataset: str) -> str:
    return f"bigquery://onceward-test/{dataset}?endpoint={server.endpoint}"


@pytest.fixture
def house(url: str) -> Iterator[Warehouse]:
    with_tables = prepared(url)
    yield with_tables
    with_tables.close()


def prepared(url: str) -> BigQueryWarehouse:
    house = open_warehouse(url)
    assert isinstance(house, BigQueryWarehouse)
    for table in (STATEMENTS, USERS):
        house.prepare(table)
    return house


@pytest.fixture
def query(house: BigQueryWarehouse, dataset: str) -> Query:
    return asking(house, dataset)


def asking(house: BigQueryWarehouse, dataset: str) -> Query:
    from google.cloud import bigquery as client

    def ask(statement: str) -> list[tuple[Any, ...]]:
        config = client.QueryJobConfig(default_dataset=f"onceward-test.{dataset}")
        return [tuple(row.values()) for row in house.client.query(statement, job_config=config).result()]

    return ask
