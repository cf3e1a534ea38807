"""The Celery tasks of the shop."""

from celery import shared_task

from .services import place_in_transaction


@shared_task(acks_late=True)
def place_order_later(reference: str) -> int:
    return place_in_transaction(reference)
