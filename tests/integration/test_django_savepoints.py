"""Jobs in a transaction of Django use Django's own savepoints: on SQLite and on PostgreSQL."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from django.db import IntegrityError, transaction

from onceward import Failed, Once, RecordState
from onceward.errors import ClaimError
from tests.integration.test_wrapped_connections import (  # the fixtures
    django_on_postgres,
    django_on_sqlite,
    effect_of,
    in_django,
    words,
)

__all__ = ["django_on_postgres", "django_on_sqlite", "in_django"]

Joined = tuple[Once, Any, str]


class Stop(Exception):
    pass


@pytest.mark.finding("N1")
def test_on_commit_callbacks_of_a_failed_handler_are_dropped(in_django: Joined) -> None:
    once, theirs, table = in_django
    called: list[str] = []

    def fails() -> NoReturn:
        transaction.on_commit(lambda: called.append("failed"), using="theirs")
        raise Stop

    def succeeds() -> str:
        transaction.on_commit(lambda: called.append("succeeded"), using="theirs")
        return effect_of(theirs, table, "kept")()

    with transaction.atomic(using="theirs"), once.within(theirs) as tx:
        assert isinstance(tx.outcome("failed", fails), Failed)
        assert tx.run("succeeded", succeeds) == "kept"
        assert called == []
    assert called == ["succeeded"]
    assert words(theirs, table) == ["kept"]


@pytest.mark.finding("N2")
def test_a_failed_handler_leaves_the_transaction_usable(in_django: Joined) -> None:
    once, theirs, table = in_django

    def fails() -> NoReturn:
        effect_of(theirs, table, "undone")()
        with transaction.atomic(using="theirs", savepoint=False):  # as Model.save() does
            raise IntegrityError

    with transaction.atomic(using="theirs"), once.within(theirs) as tx:
        assert tx.run("before", effect_of(theirs, table, "before")) == "before"
        assert isinstance(tx.outcome("failed", fails), Failed)
        assert not theirs.needs_rollback
        assert tx.run("after", effect_of(theirs, table, "after")) == "after"
    assert words(theirs, table) == ["after", "before"]
    record = once.read("before")
    assert record is not None
    assert record.state is RecordState.COMPLETED


@pytest.mark.finding("N2")
def test_a_handler_that_hides_a_database_error_is_not_reported_as_done(in_django: Joined) -> None:
    once, theirs, table = in_django

    def hides() -> str:
        effect_of(theirs, table, "undone")()
        try:
            with transaction.atomic(using="theirs", savepoint=False):
                raise IntegrityError
        except IntegrityError:
            return "looks fine"

    with transaction.atomic(using="theirs"), once.within(theirs) as tx:
        assert tx.run("before", effect_of(theirs, table, "before")) == "before"
        failed = tx.outcome("hidden", hides)
        assert isinstance(failed, Failed)
        assert "marked its transaction for rollback" in failed.error
    assert words(theirs, table) == ["before"]
    assert once.read("hidden") is None


@pytest.mark.finding("N2")
def test_a_broken_transaction_refuses_the_next_job(in_django: Joined) -> None:
    once, theirs, table = in_django
    ran: list[int] = []
    with transaction.atomic(using="theirs"), once.within(theirs) as tx:
        transaction.set_rollback(True, using="theirs")
        with pytest.raises(transaction.TransactionManagementError):
            tx.run("k", ran.append, 1)
    assert ran == []
    assert words(theirs, table) == []


def test_a_handler_that_commits_by_hand_raises(in_django: Joined) -> None:
    once, theirs, _ = in_django
    errors: list[BaseException] = []

    def commits() -> None:
        with theirs.cursor() as cursor:
            cursor.execute("COMMIT")

    try:
        with transaction.atomic(using="theirs"), once.within(theirs) as tx:
            try:
                tx.run("k", commits)
            except ClaimError as error:
                errors.append(error)
                raise
    except Exception as error:  # Django may replace it: it cannot roll back either
        errors.append(error)
    assert isinstance(errors[0], ClaimError)
    assert "ended inside the handler" in str(errors[0])
