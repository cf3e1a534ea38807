"""Blocking keys: only records that share one are compared.

A key combines two weak facts, and a record has several keys, so that a match is found even if one fact is wrong.
"""

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
_SKELETON_LENGTH: Final = (
    4  # letters: with more, typos would separate records of one person; with fewer, strangers would share keys
)
_SELECTIVE_KINDS: Final = ("birth date", "number", "phone", "email")
"""Kinds whose values are rare enough to be a blocking key alone. Strong keys have their own index."""

MAX_CANDIDATES: Final = 12
"""A record is compared with at most this many others, those that share the most blocks. So no name is too common."""

MIN_SHARED: Final = 2
"""Common blocks that two records must share to be compared. One rare block is enough."""


class Blocks(NamedTuple):
    """Blocking keys as 63-bit integers, which databases index well."""

    rare: tuple[int, ...]
    common: tuple[int, ...]


NO_BLOCKS: Final = Blocks((), ())


def blocks_of(preset: Preset, form: tuple[str, ...]) -> Blocks:
    if not any(form):
        return NO_BLOCKS
    given, surname = skeleton(form[GIVEN].partition(" ")[0]), skeleton(form[SURNAME].replace(" ", ""))
    filled = [
        (one.kind.name, one.name, key) for one, key in zip(preset.slots, form, strict=True) if key and not one.strong
    ]
    places = list(_places(filled))
    rare = {_block_number(block) for block in _rare(filled, surname, places)}
    common = {_block_number(f"{name}@{place}") for place in places for name in {given, surname} - {""}}
    if given and surname:
        whole = "&".join(("name", *sorted((given, surname))))  # sorted: the two may be swapped
        common.add(_block_number(whole))
        rare |= {
            _block_number(f"{whole}@{place}") for place in places
        }  # finds a match even if many records share one part
    return Blocks(tuple(rare), tuple(common - rare))


def _rare(filled: list[tuple[str, str, str]], surname: str, places: list[str]) -> Iterator[str]:
    yield from (f"{name}={key}" for kind, name, key in filled if kind in _SELECTIVE_KINDS)
    if surname:
        yield from (f"company={key}&{surname}" for kind, _, key in filled if kind == "company")
    street = next((key for kind, _, key in filled if kind == "street"), "")
    if street:
        yield from (f"{_house_key(street)}@{place}" for place in places)


def best_candidates(blocks: Blocks, members: Mapping[int, Sequence[int]]) -> list[int]:
    """Return the numbers that share the most of these blocks. `members` has the numbers in each block."""
    shared: Counter[int] = Counter()
    for block in blocks.common:
        shared.update(members.get(block, ()))
    for block in blocks.rare:
        for number in members.get(block, ()):
            shared[number] += MIN_SHARED
    found = [(count, number) for number, count in shared.items() if count >= MIN_SHARED]
    if len(found) > MAX_CANDIDATES:
        found = nlargest(MAX_CANDIDATES, found)
    return [number for _, number in found]


def _places(filled: list[tuple[str, str, str]]) -> Iterator[str]:
    yield from (key for kind, _, key in filled if kind == "postcode")
    yield from (skeleton(key.replace(" ", "")) for kind, _, key in filled if kind == "city")


def _house_key(street: str) -> str:
    """Return the house number and the first word of the street, in this order."""
    words = street.split()
    digits = [word for word in words if word[0].isdigit()]
    letters = [word for word in words if not word[0].isdigit()]
    return "/".join(digits[:1] + [skeleton(word) for word in letters[:1]])


@lru_cache(maxsize=65_536)
def skeleton(word: str) -> str:
    """Return roughly how a word sounds: its first letters without vowels, with similar sounds replaced by one."""
    if not word:
        return ""
    sounds = word.replace("ph", "f").translate(_SOUNDS)
    kept = [sounds[0] if sounds[0] not in _VOWELS else "a"]
    for letter in sounds[1:]:
        if letter not in _VOWELS and letter != kept[-1]:
            kept.append(letter)
            if len(kept) == _SKELETON_LENGTH:
                break
    return "".join(kept)


def _block_number(block: str) -> int:
    return int.from_bytes(blake2b(block.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 1
