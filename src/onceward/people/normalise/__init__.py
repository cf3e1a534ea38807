"""Normalisers: from what people write to what can be compared. Pure: the same text gives the same key, everywhere.

Each takes a text and returns its key; a ValueError says why a text has none. Write your own as a plain function.
"""

from __future__ import annotations

from typing import Final

from .companies import company
from .countries import country
from .dates import birth_date
from .email import email, email_of_mailbox
from .names import full_name, name
from .numbers import external_id, number
from .phones import phone
from .places import city, postcode, street
from .text import fold, trimmed

VERSION: Final = 1
"""Raised when any of them gives another key for the same text. Then indexes have to be made anew."""

__all__ = [
    "VERSION",
    "birth_date",
    "city",
    "company",
    "country",
    "email",
    "email_of_mailbox",
    "external_id",
    "fold",
    "full_name",
    "name",
    "number",
    "phone",
    "postcode",
    "street",
    "trimmed",
]
