"""The tests of the shop: what a user of Onceward writes. `test_django_user_tests.py` runs them in several ways.

Both classes use the same key in every test: without isolation, the second test would replay the first one.
"""

from unittest.mock import patch

from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test import SimpleTestCase, TestCase, TransactionTestCase, override_settings

from onceward import ConfigurationError, Failed
from onceward.django import aonce, once
from onceward.django.models import Record

from .models import Order
from .services import aplace_order, place_order


class Isolation:
    """Each test runs the work under the same key, once."""

    def check(self) -> None:
        self.assertEqual(Record.objects.count(), 0)
        first = place_order("A1")
        self.assertEqual(place_order("A1"), first)
        self.assertEqual(Order.objects.count(), 1)
        self.assertEqual(Record.objects.count(), 1)
        self.assertEqual(once.read("order:A1", name=place_order.operation.name).state, "COMPLETED")

    def test_first(self) -> None:
        self.check()

    def test_second(self) -> None:
        self.check()

    def test_async(self) -> None:
        async def twice() -> tuple[int, int]:
            return await aplace_order("A1"), await aplace_order("A1")

        first, second = async_to_sync(twice)()
        self.assertEqual(first, second)
        self.assertEqual(Order.objects.count(), 1)

    def test_a_failed_job_leaves_the_transaction_usable(self) -> None:
        called: list[str] = []

        def fails() -> None:
            Order.objects.create(reference="undone")
            transaction.on_commit(lambda: called.append("undone"))
            Order.objects.create(id="not a number")

        with once.atomic() as tx:
            self.assertIsInstance(tx.outcome("fails", fails), Failed)
            tx.call(place_order, "kept")
        self.assertEqual([one.reference for one in Order.objects.all()], ["kept"])
        self.assertEqual(called, [])

    def test_the_setting_can_be_overridden(self) -> None:
        place_order("A1")
        with override_settings(ONCEWARD={"APP": "other shop", "MAX_ATTEMPTS": 7}):
            place_order("A1")
            self.assertEqual(place_order.policy.max_attempts, 7)
        place_order("A1")
        self.assertEqual(Order.objects.count(), 2)
        self.assertEqual(
            {one.scope for one in Record.objects.all()},
            {f"{app}/{place_order.operation.name}" for app in ("shop", "other shop")},
        )

    def test_a_call_in_an_open_transaction_joins_it(self) -> None:
        with self.assertRaises(KeyError), transaction.atomic():
            place_order("A1")
            raise KeyError
        self.assertIsNone(place_order.read("A1"))
        with transaction.atomic():
            place_order("A1")
        self.assertEqual(place_order.read("A1").state, "COMPLETED")
        self.assertEqual(Order.objects.count(), 1)

    def test_a_call_in_an_open_transaction_can_be_refused(self) -> None:
        with (
            override_settings(ONCEWARD={"OPEN_TRANSACTION": "refuse"}),
            self.assertRaisesRegex(ConfigurationError, "a transaction is open"),
            transaction.atomic(),
        ):
            place_order("A1")
        self.assertEqual(Order.objects.count(), 0)

    def test_a_request_that_fails_with_atomic_requests_leaves_no_record(self) -> None:
        self.client.raise_request_exception = False
        with patch.dict(connection.settings_dict, ATOMIC_REQUESTS=True):
            self.assertEqual(self.client.post("/fails?fails=1").status_code, 500)
            self.assertIsNone(place_order.read("A1"))
            self.assertEqual(self.client.post("/fails").status_code, 200)
        self.assertEqual(place_order.read("A1").state, "COMPLETED")

    def test_work_that_django_rolls_back_is_not_reported_as_done(self) -> None:
        with self.assertRaisesRegex(transaction.TransactionManagementError, "is undone"), once.atomic() as tx:
            tx.call(place_order, "A1")
            transaction.set_rollback(True)
        self.assertIsNone(place_order.read("A1"))

    def test_adopting_it_step_by_step(self) -> None:
        with override_settings(ONCEWARD={"MODE": "observe"}):
            self.assertEqual(once.mode, "observe")
            place_order("A1")
            place_order("A1")
            self.assertEqual(Order.objects.count(), 2)
        self.assertEqual(once.mode, "enforce")
        place_order("B1")
        place_order("B1")
        self.assertEqual(Order.objects.count(), 3)

    def test_async_transactions_are_refused(self) -> None:
        with self.assertRaisesRegex(ConfigurationError, "sync_to_async"):
            aonce.atomic()


class InTransaction(Isolation, TestCase):
    """Django rolls back each test."""

    def test_records_are_in_the_transaction_of_the_test(self) -> None:
        place_order("A1")
        transaction.set_rollback(True)
        self.assertTrue(connection.in_atomic_block)


class Flushed(Isolation, TransactionTestCase):
    """Django empties the tables after each test."""


class WithoutDatabase(SimpleTestCase):
    """Django refuses queries here. Onceward must not write past it, into the development database."""

    def test_work_is_refused(self) -> None:
        with self.assertRaisesRegex(AssertionError, "Database"):
            once.run("without a database", str)


class StillWithoutDatabase(WithoutDatabase):
    """Once more, in a process that has used the database before."""
