"""Work that `manage.py onceward recover` and `schedule` find."""

from onceward.django import once

from .models import Order
from .stages import reached


@once(key="import:{reference}", store_input=True, name="import_order")
def import_order(reference: str) -> None:
    reached("started")
    Order.objects.create(reference=reference)
