"""The tests of a Django project isolate their records, without configuration (tests/django_project/shop/tests.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.django_processes import SHOP, Project, postgres_database

TESTS = f"{SHOP}.tests"
PYTEST = (
    *("-m", "pytest", "-q", "-p", "django", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", "."),
    *("-o", "python_files=tests.py", "-o", "pythonpath=.", "-o", "consider_namespace_packages=true"),
    "tests/django_project/shop/tests.py",
)


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Project:
    return Project(str(tmp_path / "development.sqlite3"))


@pytest.fixture
def on_postgres(postgres: object) -> Iterator[Project]:
    with postgres_database() as url:
        yield Project(url)


@pytest.mark.finding("N7")
@pytest.mark.parametrize("command", ["test --parallel 2", "pytest"])
def test_tests_are_isolated_and_leave_the_development_database_alone_on_sqlite(
    on_sqlite: Project, command: str
) -> None:
    if command == "pytest":
        assert "13 passed" in on_sqlite.run(*PYTEST)
    else:
        assert "Ran 13 tests" in on_sqlite.manage(*command.split(), TESTS)
    assert not Path(on_sqlite.database).exists()


@pytest.mark.finding("N7")
def test_tests_are_isolated_and_leave_the_development_database_alone_on_postgres(on_postgres: Project) -> None:
    assert "Ran 13 tests" in on_postgres.manage("test", "--parallel", "2", TESTS)
    assert on_postgres.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == []


@pytest.mark.finding("N7")
def test_a_test_without_a_database_cannot_write_to_the_development_database(on_sqlite: Project) -> None:
    on_sqlite.manage("migrate", "-v", "0")
    assert "Ran 1 test" in on_sqlite.manage("test", f"{TESTS}.WithoutDatabase")  # no test database is created
    assert on_sqlite.sql("SELECT count(*) FROM onceward_records") == [(0,)]


@pytest.mark.finding("N7")
def test_the_tables_come_from_migrations_that_makemigrations_leaves_alone(on_sqlite: Project) -> None:
    assert "No changes detected" in on_sqlite.manage("makemigrations", "--check", "--dry-run")
    assert "CREATE TABLE onceward_records" in on_sqlite.manage("sqlmigrate", "onceward", "0001")
    on_sqlite.manage("migrate", "-v", "0")
    on_sqlite.manage("migrate", "-v", "0", "onceward", "zero")
    assert on_sqlite.sql("SELECT name FROM sqlite_master WHERE name LIKE 'onceward%'") == []
