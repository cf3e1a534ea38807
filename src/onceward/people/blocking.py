"""Blocking keys: records that share one are compared. Each is made of two weak facts, so that one may be wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from heapq import nlargest
from typing import Final, NamedTuple

from .fields import GIVEN, SURNAME, Preset

_SOUNDS: Final = str.maketrans("cqzwdgpyh", "kksvtjbii")
_VOWELS: Final = frozenset("aeiou")
_LENGTH: Final = 4  # letters of a skeleton: more would keep slips apart, fewer would bring strangers together
_ALONE: Final = ("birth date", "number", "phone", "email")
"""Kinds whose keys are rare enough to be looked up by themselves; strong ones have an index of their own."""

MOST_COMPARED: Final = 12
"""Records that one is compared with, those that share the most: so that no name is too common to be looked up."""

ENOUGH: Final = 2
"""Blocks to share, if none of them is rare."""


class Blocks(NamedTuple):
    """As numbers of 63 bits: databases are quick with these. Two who share a rare one are worth a look."""

    rare: tuple[int, ...]
    common: tuple[int, ...]


NONE: Final = Blocks((), ())


def blocks_of(preset: Preset, form: tuple[str, ...]) -> Blocks:
    if not any(form):
        return NONE
    given, surname = skeleton(form[GIVEN].partition(" ")[0]), skeleton(form[SURNAME].replace(" ", ""))
    filled = [
        (one.kind.name, one.name, key) for one, key in zip(preset.slots, form, strict=True) if key and not one.strong
    ]
    places = list(_places(filled))
    rare = {_number(block) for block in _rare(filled, surname, places)}
    common = {_number(f"{name}@{place}") for place in places for name in {given, surname} - {""}}
    if given and surname:
        whole = "&".join(("name", *sorted((given, surname))))  # sorted: they may have been swapped
        common.add(_number(whole))
        rare |= {_number(f"{whole}@{place}") for place in places}  # found however many share a part of it
    return Blocks(tuple(rare), tuple(common - rare))


def _rare(filled: list[tuple[str, str, str]], surname: str, places: list[str]) -> Iterator[str]:
    yield from (f"{name}={key}" for kind, name, key in filled if kind in _ALONE)
    if surname:
        yield from (f"company={key}&{surname}" for kind, _, key in filled if kind == "company")
    street = next((key for kind, _, key in filled if kind == "street"), "")
    if street:
        yield from (f"{_dwelling(street)}@{place}" for place in places)


def closest(blocks: Blocks, inside: Mapping[int, Sequence[int]]) -> list[int]:
    """The numbers that share the most of these blocks, of all that are inside them."""
    shared: Counter[int] = Counter()
    for block in blocks.common:
        shared.update(inside.get(block, ()))
    for block in blocks.rare:
        for number in inside.get(block, ()):
            shared[number] += ENOUGH
    near = [(count, number) for number, count in shared.items() if count >= ENOUGH]
    if len(near) > MOST_COMPARED:
        near = nlargest(MOST_COMPARED, near)
    return [number for _, number in near]


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
