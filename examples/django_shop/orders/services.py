"""The work of the shop. Each function runs once per key, whether a view, a task, a command or a shell calls it."""

from datetime import date

from django.db.models import Sum

from onceward.django import once

from .models import DayReport, Order


@once(key="order:{reference}", name="place_order")
def place_order(reference: str, cents: int) -> int:
    """Store an order. In a transaction of the caller, the record commits with the caller's rows."""
    return int(Order.objects.create(reference=reference, cents=cents).pk)


@once(key="mail:{order}", name="mail_receipt", after_crash="park")
def mail_receipt(order: int) -> str:
    """Send the receipt. After a crash, a person decides whether it was sent."""
    Order.objects.filter(pk=order).update(mailed=True)
    return f"receipt {order}"


@once(key="close:{day}", name="close_day")
def close_day(day: date) -> int:
    """Store the turnover of a day."""
    cents = Order.objects.aggregate(sum=Sum("cents"))["sum"] or 0
    DayReport.objects.create(day=day, cents=cents)
    return int(cents)
