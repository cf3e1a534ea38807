"""The Celery tasks."""

from celery import shared_task

from onceward import AlreadyRunning, LeaseLost, OutcomeUnknown
from onceward.errors import StoreError

from .models import Order
from .services import mail_receipt

RETRY = (AlreadyRunning, LeaseLost, OutcomeUnknown, StoreError)
"""What a later attempt can fix."""


@shared_task(autoretry_for=RETRY, retry_backoff=True, max_retries=20)
def mail_receipt_later(order: int) -> str:
    """Send the receipt once, however often the message is delivered."""
    return mail_receipt(order)


@shared_task
def mail_missing_receipts() -> int:
    """Send the messages again that were lost between the commit and the broker. Duplicates do no harm."""
    missing = list(Order.objects.filter(mailed=False).values_list("pk", flat=True))
    for order in missing:
        mail_receipt_later.delay(order)
    return len(missing)
