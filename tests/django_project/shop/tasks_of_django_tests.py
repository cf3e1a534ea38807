"""Tasks of Django 6.0: a task calls a decorated function."""

from django.tasks import TaskResultStatus, task
from django.test import TransactionTestCase

from .models import Order
from .services import place_order


@task
def place_order_as_task(reference: str) -> int:
    return place_order(reference)


class Tasks(TransactionTestCase):
    """The default backend runs a task immediately."""

    def test_a_task_that_is_enqueued_twice_runs_once(self) -> None:
        first, second = (place_order_as_task.enqueue("A1") for _ in range(2))
        self.assertEqual(second.status, TaskResultStatus.SUCCESSFUL)
        self.assertEqual(first.return_value, second.return_value)
        self.assertEqual(Order.objects.count(), 1)
