"""The key of a payload: a whole form, hashed. Compared with what most people write for that."""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from typing import Any

from bench.case import Case, Cases, Plan, calling
from bench.paired import Block
from onceward import Once, Payload
from onceward.stores import MemoryStore

NAME = "payload key of 1 KB, against json.dumps + sha256"
FORMS = 64
"""Number of different forms, so that no cache can help."""

Form = dict[str, Any]


def cases(plan: Plan) -> Cases:
    if not plan.wants(NAME):
        return
    with Once(MemoryStore()) as once:

        @once(key=Payload(), name="bench")
        def submit(form: Form) -> None:
            """Never called: only its key is computed."""

        assert is_type_exact(submit.key), "1, 1.0, True, '1' and Decimal(1) must have different keys"
        yield Case(NAME, over_forms(submit.key), over_forms(json_key), plan.effort.calls)


def json_key(form: Form) -> str:
    return hashlib.sha256(json.dumps(form, sort_keys=True, default=str).encode()).hexdigest()


def is_type_exact(key: Any) -> bool:
    values = (1, 1.0, True, "1", Decimal(1))
    return len({key({"amount": value}) for value in values}) == len(values)


def over_forms(key: Any) -> Block:
    forms = [form(number) for number in range(FORMS)]
    return lambda times: calling(key, [forms[number % FORMS] for number in range(times)])


def form(number: int) -> Form:
    """Return an order of 1 KB as JSON, with texts, numbers, a list of items and nesting."""
    return {
        "order_id": f"2026-{number:06}",
        "customer": {
            "id": 48_213 + number,
            "name": "Ada Lovelace",
            "email": "ada.lovelace@example.org",
            "newsletter": False,
            "address": {"street": "12 St James's Square", "city": "London", "postcode": "SW1Y 4JH", "country": "GB"},
        },
        "currency": "GBP",
        "total": 1_284.5 + number,
        "discount": None,
        "items": [
            {
                "sku": f"SKU-{number:04}-{line}",
                "title": "Difference engine, spare wheel",
                "quantity": line + 1,
                "unit_price": 49.75 + line,
                "tags": ["brass", "wheel"],
                "in_stock": True,
            }
            for line in range(5)
        ],
        "comment": "Please ring twice and leave the parcel with the neighbour.",
    }
