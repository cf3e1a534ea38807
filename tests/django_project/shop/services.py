"""The work of the shop."""

from onceward.django import aonce, once

from .models import Order


@once(key="order:{reference}")
def place_order(reference: str, cents: int = 0) -> int:
    return Order.objects.create(reference=reference, cents=cents).pk


@aonce(key="order:{reference}", name="aplace_order")
async def aplace_order(reference: str) -> int:
    return (await Order.objects.acreate(reference=reference)).pk
