"""Blocking keys: records that share one are compared. Each is made of two weak facts, so that one may be wrong."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from .fields import GIVEN, SURNAME, Preset

_SOUNDS: Final = str.maketrans("cqzwdgpyh", "kksvtjbii")
_VOWELS: Final = frozenset("aeiou")
_LENGTH: Final = 4  # letters of a skeleton: more would keep slips apart, fewer would bring strangers together
_ALONE: Final = ("birth date", "number", "phone", "email")
"""Kinds whose keys are rare enough to be looked up by themselves."""


def blocks_of(preset: Preset, form: tuple[str, ...]) -> tuple[int, ...]:
    """As numbers of 63 bits: databases are quick with these."""
    return tuple({_number(block) for block in _blocks(preset, form)})


def _blocks(preset: Preset, form: tuple[str, ...]) -> Iterator[str]:
    given, surname = skeleton(form[GIVEN].partition(" ")[0]), skeleton(form[SURNAME].replace(" ", ""))
    filled = [(slot.kind.name, slot.name, key) for slot, key in zip(preset.slots, form, strict=True) if key]
    yield from (f"{name}={key}" for kind, name, key in filled if kind in _ALONE)
    if given and surname:
        yield "&".join(("name", *sorted((given, surname))))  # sorted: they may have been swapped
    if surname:
        yield from (f"company={key}&{surname}" for kind, _, key in filled if kind == "company")
    street = next((key for kind, _, key in filled if kind == "street"), "")
    for place in _places(filled):
        yield from (f"{name}@{place}" for name in {given, surname} - {""})
        if street:
            yield f"{_dwelling(street)}@{place}"


def _places(filled: list[tuple[str, str, str]]) -> Iterator[str]:
    yield from (key for kind, _, key in filled if kind == "postcode")
    yield from (skeleton(key.replace(" ", "")) for kind, _, key in filled if kind == "city")


def _dwelling(street: str) -> str:
    """The number and the first word, in any order."""
    words = street.split()
    digits = [word for word in words if word[0].isdigit()]
    letters = [word for word in words if not word[0].isdigit()]
    return "/".join(digits[:1] + [skeleton(word) for word in letters[:1]])


@lru_cache(maxsize=65_536)
def skeleton(word: str) -> str:
    """How it sounds, roughly: its first letters without the vowels, those that sound alike as one."""
    if not word:
        return ""
    sounds = word.replace("ph", "f").translate(_SOUNDS)
    kept = [sounds[0] if sounds[0] not in _VOWELS else "a"]
    for letter in sounds[1:]:
        if letter not in _VOWELS and letter != kept[-1]:
            kept.append(letter)
            if len(kept) == _LENGTH:
                break
    return "".join(kept)


def _number(block: str) -> int:
    return int.from_bytes(blake2b(block.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 1
