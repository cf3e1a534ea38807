"""The tests of a Django project isolate their records, without configuration (tests/django_project/shop/tests.py)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward.stores.postgres import schema as postgres_schema
from onceward.stores.sqlite import schema as sqlite_schema
from tests.integration.django_processes import SHOP, Project, postgres_database

pytestmark = pytest.mark.timeout(600)
TESTS = tuple(f"{SHOP}.{name}" for name in ("tests", "http_tests", "admin_tests", "settings_tests"))
FILES = tuple(
    f"tests/django_project/shop/{name}.py"
    for name in ("tests", "http_tests", "admin_tests", "settings_tests", "clock_tests")
)
PYTEST = (
    *("-m", "pytest", "-q", "-p", "django", "-p", "onceward.django.pytest_plugin", "-p", "no:cacheprovider"),
    *("-c", "/dev/null", "--rootdir", ".", "-o", "pythonpath=.", "-o", "consider_namespace_packages=true"),
    *FILES,
)


MANY = 20
MIGRATE = """
import django; django.setup()
from importlib import import_module
from pkgutil import iter_modules
from django.core.management import call_command
import onceward.django.migrations as folder
newest = max(one.name for one in iter_modules(folder.__path__))
[operation] = import_module(f"{folder.__name__}.{newest}").Migration.operations
print("versions", operation.database_operations[0].versions)
call_command("makemigrations", check_changes=True, dry_run=True)
call_command("sqlmigrate", "onceward", "0001")
call_command("migrate", verbosity=0)
"""


def number_of_tests(printed: str) -> int:
    found = re.search(r"Ran (\d+) test", printed)
    assert found is not None, printed
    return int(found[1])


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Project:
    return Project(str(tmp_path / "development.sqlite3"))


@pytest.fixture
def on_postgres(postgres: object) -> Iterator[Project]:
    with postgres_database() as url:
        yield Project(url)


@pytest.mark.finding("N7")
def test_pytest_isolates_tests_and_leaves_the_development_database_alone(on_sqlite: Project) -> None:
    assert " passed" in on_sqlite.run(*PYTEST)
    assert not Path(on_sqlite.database).exists()


@pytest.mark.finding("N3", "N5", "N7")
def test_parallel_tests_are_isolated_on_sqlite(on_sqlite: Project) -> None:
    assert number_of_tests(on_sqlite.manage("test", "--parallel", "2", f"{SHOP}.tests")) > MANY
    assert not Path(on_sqlite.database).exists()


@pytest.mark.finding("N3", "N5", "N7")
def test_parallel_tests_are_isolated_on_postgres(on_postgres: Project) -> None:
    assert number_of_tests(on_postgres.manage("test", "--parallel", "2", *TESTS)) > MANY
    assert on_postgres.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == []


@pytest.mark.finding("N7")
def test_the_tables_come_from_migrations_that_makemigrations_leaves_alone(on_sqlite: Project) -> None:
    printed = on_sqlite.run("-c", MIGRATE)
    latest = {"sqlite": sqlite_schema.LATEST, "postgresql": postgres_schema.LATEST}
    assert f"versions {latest}" in printed  # if it fails: a new version of the tables needs a new migration of Django
    assert "No changes detected" in printed
    assert "CREATE TABLE onceward_records" in printed
    # Without a test database, Django leaves the name of the development database in the settings.
    assert number_of_tests(on_sqlite.manage("test", f"{SHOP}.tests.WithoutDatabase")) == 1
    assert number_of_tests(on_sqlite.manage("test", f"{SHOP}.admin_tests")) > 1  # its counters are written at exit
    assert on_sqlite.sql("SELECT count(*) FROM onceward_counters") == [(0,)]
    assert on_sqlite.sql("SELECT count(*) FROM onceward_records") == [(0,)]
    on_sqlite.manage("migrate", "-v", "0", "onceward", "zero")
    assert on_sqlite.sql("SELECT name FROM sqlite_master WHERE name LIKE 'onceward%'") == []


def test_the_example_runs_its_tests(on_sqlite: Project) -> None:
    on_sqlite.environment["DJANGO_SETTINGS_MODULE"] = "examples.django_shop.settings"
    printed = on_sqlite.run("-m", "examples.django_shop.manage", "test", "examples.django_shop.orders.tests")
    assert number_of_tests(printed) > 1


NOT_A_TEST = """
import django; django.setup()
from django.core import mail
from django.core.mail import send_mail
from django.test import RequestFactory
from onceward.django import once
send_mail("subject", "text", "from@shop.example", ["to@shop.example"])
assert mail.outbox
print("works on the connection of Django:", once.engine.store.followed().on_django)
"""


@pytest.mark.finding("N7")
def test_a_server_that_keeps_mails_in_memory_is_no_test(on_sqlite: Project) -> None:
    """As a test, it would not renew its leases: work that takes longer than its lease would run twice."""
    on_sqlite.environment["SHOP_EMAIL"] = "django.core.mail.backends.locmem.EmailBackend"
    assert "works on the connection of Django: False" in on_sqlite.run("-c", NOT_A_TEST)
