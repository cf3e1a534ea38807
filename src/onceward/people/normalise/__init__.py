"""Normalisers: convert text as people write it into keys that can be compared.

They are pure functions: the same text gives the same key on every machine. Each takes a text and returns its key, or
raises a ValueError that says why the text has no key. You can write your own as a plain function.
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

VERSION: Final = 4
"""Incremented when a normaliser returns another key for the same text, or blocking keys change.

Indexes must then be rebuilt.
"""

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
