"""Phone numbers, as E.164."""

from __future__ import annotations

from functools import lru_cache

from onceward.protocol.extras import import_extra


@lru_cache(maxsize=4096)  # members of a household share a number
def phone(text: str, region: str | None = None) -> str:
    """`0171 / 555 1234` in the region DE → `+491715551234`. Without a region, a number must start with +."""
    problem = "phone numbers need the module 'phonenumbers'"
    phonenumbers = import_extra("phonenumbers", problem, "install onceward[people]")
    try:
        number = phonenumbers.parse(text, region)
    except phonenumbers.NumberParseException as error:
        raise ValueError(f"{text[:40]!r} is not a phone number: {error}") from error
    if not phonenumbers.is_possible_number(number):
        raise ValueError(f"{text[:40]!r} is not a possible phone number")
    return str(phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164))
