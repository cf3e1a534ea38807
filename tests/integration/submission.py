"""A payload of many types. Its module imports little, because other processes import it too."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

SUBMISSION: dict[str, Any] = {
    "company": "Acme",
    "premium": Decimal("1250.00"),
    "id": UUID("8c0e4a5e-0f9c-4a53-a2a5-0a3a5c3f5c11"),
    "received": datetime(2026, 1, 5, 9, 30, tzinfo=UTC),
    "from": date(2026, 2, 1),
    "lasts": timedelta(days=365),
    "locations": [{"city": "Köln", "value": 1.5}, {"city": "Oslo", "value": 2}],
    "tags": {"new", "marine", "eu"},
    "scan": b"\x00\xff",
}
