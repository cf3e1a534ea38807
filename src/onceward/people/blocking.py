"""Blocking keys: only records that share one are compared.

A key combines a part of the name with another fact, and a record has several independent keys, so that a match is found
even if one fact is wrong. Every pair that may be merged shares a *complete* key, unless both names are misspelt: all
records with it are read. Pairs that can only become a question share a *partial* key, of which the newest records are
read. To keep blocks small, common facts are combined with further facts. If a block is large nevertheless (thousands of
people with one name and year of birth), the narrower blocks still find the pair: name, birth date and place, or all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from heapq import nlargest
from typing import Final, NamedTuple

from .fields import GIVEN, SURNAME, Preset
from .normalise.placeholders import is_of_a_role

_SOUNDS: Final = str.maketrans("cqzwdgpyh", "kksvtjbii")
_VOWELS: Final = frozenset("aeiou")
_SKELETON_LENGTH: Final = (
    4  # letters: with more, typos would separate records of one person; with fewer, strangers would share keys
)
_NAMED_KINDS: Final = ("phone", "email", "mailbox")
"""Kinds whose values are shared by a household or an office."""

_OTHER_KINDS: Final = ("given name", "surname", "company", "street", "postcode", "city", "region", "country")
"""Kinds that have keys of their own below, or that are too common for one."""

MIN_HALF: Final = 3
"""Characters that half of a number needs to be a part of a key."""

MAX_PARTIAL: Final = 12
"""Candidates that are compared because of partial keys only: those that share the most."""


class Blocks(NamedTuple):
    """Blocking keys as 63-bit integers, which databases index well."""

    complete: tuple[int, ...]
    partial: tuple[int, ...]


NO_BLOCKS: Final = Blocks((), ())


class _Facts(NamedTuple):
    """What keys are made of."""

    parts: tuple[str, ...]
    """How given name and surname sound."""

    name: str
    """Both, in alphabetical order, because they may be interchanged; empty if one is missing."""

    initials: tuple[str, ...]
    places: tuple[str, ...]
    values: tuple[tuple[str, str, str], ...]
    """Kind, field and value."""

    def of(self, *kinds: str) -> Iterator[str]:
        return (value for kind, _, value in self.values if kind in kinds)


def blocks_of(preset: Preset, form: tuple[str, ...]) -> Blocks:
    if not any(form):
        return NO_BLOCKS
    facts = _facts(preset, form)
    complete = {_block_number(block) for block in _complete(facts)}
    complete.add(_block_number("\0".join(("equal", *form))))
    for rule in preset.rules:
        values = [form[preset.places[slot]] for slot in rule.slots]
        if all(values):
            complete.add(_block_number("&".join(("rule", *rule.fields, *values))))
    partial = {_block_number(block) for block in _partial(facts)}
    return Blocks(tuple(complete), tuple(partial - complete))


def _facts(preset: Preset, form: tuple[str, ...]) -> _Facts:
    given, surname = form[GIVEN].partition(" ")[0], form[SURNAME].replace(" ", "")
    parts = tuple(sorted({skeleton(given), skeleton(surname)} - {""}))
    values = tuple(
        (one.kind.name, one.name, key)
        for one, key in zip(preset.slots, form, strict=True)
        if key and (not one.strong or (one.kind.name == "email" and is_of_a_role(key)))
    )
    places = tuple(f"{name}={key}" for kind, name, key in values if kind in ("postcode", "city"))
    name = "&".join(sorted((skeleton(given), skeleton(surname)))) if given and surname else ""
    return _Facts(parts, name, tuple(sorted({given[:1], surname[:1]} - {""})), places, values)


def _complete(facts: _Facts) -> Iterator[str]:
    for birth in facts.of("birth date"):
        year, _, day = birth.partition("-")
        yield from (f"born {birth}&{part}" for part in facts.parts)
        if facts.name:
            yield f"year {year}&{facts.name}"
            yield f"day {'-'.join(sorted(day.split('-')))}&{facts.name}"  # sorted: day and month may be interchanged
            yield from (f"born {birth}&{facts.name}@{place}" for place in facts.places)
    for street in facts.of("street"):
        house, word = _house_key(street), _street_word(street)
        yield from (f"house {house}@{place}&{part}" for place in facts.places for part in facts.parts)
        yield from (f"house {house}&{birth}" for birth in facts.of("birth date"))
        if facts.name:
            yield from (f"street {word}@{place}&{facts.name}" for place in facts.places)
    for kind, field, value in facts.values:
        if kind in _NAMED_KINDS:
            yield from (f"{field} {value}&{part}" for part in facts.parts)
        elif kind not in _OTHER_KINDS and kind != "birth date":
            yield from (f"{field} {value}&{letter}" for letter in facts.initials or ("",))
            half = len(value) // 2
            if half >= MIN_HALF:  # a typo leaves one half as it was
                others = (*facts.parts, *(birth[:4] for birth in facts.of("birth date")))
                yield from (f"{field} {value[:half]}…&{other}" for other in others)
                yield from (f"{field} …{value[half:]}&{other}" for other in others)


def _partial(facts: _Facts) -> Iterator[str]:
    if facts.name:
        yield from (f"{facts.name}@{place}" for place in facts.places)
        yield from (f"company {company}&{facts.name}" for company in facts.of("company"))
    yield from (f"phone {phone}" for phone in facts.of("phone"))
    yield from (f"role {address}" for address in facts.of("email") if is_of_a_role(address))


def role_block(address: str) -> int:
    """Return the blocking key of all records with this address of a role."""
    return _block_number(f"role {address}")


def candidates_of(blocks: Blocks, members: Mapping[int, Sequence[int]]) -> list[int]:
    """Return the numbers that share a complete key, and the best of those that share partial keys only."""
    complete = {number for block in blocks.complete for number in members.get(block, ())}
    shared: Counter[int] = Counter()
    for block in blocks.partial:
        shared.update(number for number in members.get(block, ()) if number not in complete)
    best = nlargest(MAX_PARTIAL, shared.items(), key=lambda item: (item[1], item[0])) if shared else []
    return [*sorted(complete), *(number for number, _ in best)]


def _house_key(street: str) -> str:
    """Return the house number and the first word of the street, in this order."""
    words = street.split()
    digits = [word for word in words if word[0].isdigit()]
    letters = [word for word in words if not word[0].isdigit()]
    return "/".join(digits[:1] + [skeleton(word) for word in letters[:1]])


def _street_word(street: str) -> str:
    """Return how the longest word of the street sounds."""
    words = [word for word in street.split() if not word[0].isdigit()]
    return skeleton(max(words, key=len, default=""))


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
