"""A Django project that manages transactions itself, or has a second database: no work is lost without notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.django_processes import Project

PROGRAM = """
import sys
from django.conf import settings
settings.DATABASES["other"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}
import django; django.setup()
from django.core.management import call_command
from django.db import connections, transaction
from onceward import ConfigurationError
from onceward.django import once
from tests.django_project.shop.services import place_order

call_command("migrate", verbosity=0)
transaction.set_autocommit(False)
try:
    place_order("A1")
except ConfigurationError as error:
    print("refused:", error)
transaction.rollback()
transaction.set_autocommit(True)
print("A1:", place_order.read("A1"))

with connections["other"].cursor() as cursor:
    cursor.execute("CREATE TABLE notes (text)")

@once(key="note:{text}", open_transaction=sys.argv[2])
def note(text: str) -> None:
    with connections["other"].cursor() as cursor:
        cursor.execute("INSERT INTO notes VALUES (%s)", [text])

try:
    with transaction.atomic(using="other"):
        note("lost")
        raise KeyError
except ConfigurationError as error:
    print("refused:", error)
except KeyError:
    print("rolled back")
print("record:", note.read("lost"))
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(str(tmp_path / "shop.sqlite3"))


@pytest.mark.finding("N3")
def test_a_call_with_autocommit_off_is_refused(project: Project, tmp_path: Path) -> None:
    printed = project.run("-c", PROGRAM, str(tmp_path / "other.sqlite3"), "refuse")
    assert "refused: Django's autocommit is off here" in printed
    assert "A1: None" in printed
    assert project.sql("SELECT count(*) FROM shop_order") == [(0,)]
    assert "refused: a transaction is open on the database 'other'" in printed
    assert "record: None" in printed


@pytest.mark.finding("N3")
def test_a_transaction_on_another_database_is_reported(project: Project, tmp_path: Path) -> None:
    process = project.start("-c", PROGRAM, str(tmp_path / "other.sqlite3"), "join")
    printed, logged = process.communicate(timeout=300)
    assert "rolled back" in printed, logged
    assert "a transaction is open on the database 'other'" in (logged or printed)
