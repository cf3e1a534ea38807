"""The tests of the shop. Records of one test are gone in the next, as all rows are."""

import json
from datetime import date
from typing import Any
from unittest.mock import patch

from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import TestCase

from onceward.django.testing import fake_clock

from .models import DayReport, Order
from .services import close_day, place_order
from .tasks import mail_missing_receipts, mail_receipt_later


class Orders(TestCase):
    """Everything takes effect once."""

    def post(self, path: str, key: str) -> Any:
        """Send an order."""
        body = json.dumps({"reference": "A1", "cents": 500})
        return self.client.post(path, body, content_type="application/json", headers={"Idempotency-Key": key})

    def test_a_repeated_request_gets_the_same_response(self) -> None:
        """Send the same request twice."""
        self.client.force_login(User.objects.create_user("ann"))
        for path in ("/orders", "/api/orders"):
            Order.objects.all().delete()
            first, second = self.post(path, f"key:{path}"), self.post(path, f"key:{path}")
            self.assertEqual((first.status_code, first.content), (201, second.content))
            self.assertEqual(second["Idempotency-Replayed"], "true")
            self.assertEqual(Order.objects.count(), 1)

    def test_the_task_is_sent_after_the_commit(self) -> None:
        """Run the callbacks of the commit."""
        self.client.force_login(User.objects.create_user("ann"))
        with patch.object(mail_receipt_later, "delay") as delay, self.captureOnCommitCallbacks(execute=True):
            self.post("/orders", "k1")
        delay.assert_called_once_with(Order.objects.get().pk)

    def test_a_task_that_is_delivered_twice(self) -> None:
        """Run the task twice, as a broker may."""
        order = place_order("A1", 500)
        self.assertEqual(mail_receipt_later.apply((order,)).get(), mail_receipt_later.apply((order,)).get())
        self.assertEqual(mail_missing_receipts(), 0)

    def test_a_command_on_two_machines(self) -> None:
        """Run the command twice."""
        place_order("A1", 500)
        for _ in range(2):
            call_command("close_day", "2026-01-31", verbosity=0)
        self.assertEqual(DayReport.objects.get().cents, 500)

    def test_after_its_window_a_day_can_be_closed_again(self) -> None:
        """Move the clock of the records."""
        with fake_clock() as clock:
            close_day(date(2026, 1, 31))
            clock.advance("25h")
            close_day(date(2026, 1, 31))
        self.assertEqual(DayReport.objects.count(), 2)
