"""The work of the shop."""

from django.db import transaction

from onceward.django import aonce, once

from .models import Order
from .stages import reached


@once(key="order:{reference}")
def place_order(reference: str, cents: int = 0) -> int:
    return Order.objects.create(reference=reference, cents=cents).pk


@aonce(key="order:{reference}", name="aplace_order")
async def aplace_order(reference: str) -> int:
    return (await Order.objects.acreate(reference=reference)).pk


def place_in_transaction(reference: str) -> int:
    """Commit the row and the record together."""

    def place() -> int:
        reached("started")
        order = Order.objects.create(reference=reference)
        reached("written")
        transaction.on_commit(lambda: reached("committed"))
        return order.pk

    with once.atomic() as tx:
        return tx.run(f"in transaction:{reference}", place)
