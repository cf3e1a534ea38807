"""How two texts that are not equal compare: each tells a level, 1 for close and so on; the last is different."""

from __future__ import annotations

from onceward.errors import MissingExtra

try:
    from rapidfuzz.distance import OSA, JaroWinkler
    from rapidfuzz.fuzz import ratio, token_set_ratio, token_sort_ratio
except ImportError as missing:
    raise MissingExtra("onceward.people needs the module 'rapidfuzz'", hint="install onceward[people]") from missing

LONG = 8  # letters, from which on two slips are as likely as one in a shorter word
ALIKE, CONTAINED = 80, 95  # percent
SHORT = 3  # letters, up to which one slip makes another word


def slips(here: str, there: str) -> bool:
    """One letter wrong, missing, added, or two swapped; two such slips in a long word."""
    longer = max(len(here), len(there))
    if longer <= SHORT:
        return False
    allowed = 2 if longer >= LONG else 1
    return bool(OSA.distance(here, there, score_cutoff=allowed) <= allowed)


def given_name(here: str, there: str) -> int:
    """Close, one begins as the other (`j`, `jo anne`), different."""
    if slips(here, there):
        return 1
    shorter, longer = sorted((here, there), key=len)
    return 2 if longer.startswith(shorter) or longer.endswith(" " + shorter) else 3


def surname(here: str, there: str) -> int:
    """Close, one is a part of the other (`muller`, `muller schmidt`), different."""
    if slips(here, there) or here.replace(" ", "") == there.replace(" ", ""):
        return 1
    words, others = here.split(), there.split()
    return 2 if len(words) != len(others) and (set(words) <= set(others) or set(others) <= set(words)) else 3


def birth_date(here: str, there: str) -> int:
    """One slip or day and month swapped, two of three parts equal, different."""
    if OSA.distance(here, there, score_cutoff=1) <= 1:
        return 1
    first, second = here.split("-"), there.split("-")
    if sorted(first) == sorted(second):
        return 1
    return 2 if sum(map(str.__eq__, first, second)) == 2 else 3  # noqa: PLR2004 (of three)


def number(here: str, there: str) -> int:
    """One slip, different."""
    return 1 if len(here) > SHORT and OSA.distance(here, there, score_cutoff=1) <= 1 else 2


def address(here: str, there: str) -> int:
    """An e-mail address with a slip, another mailbox of the same domain, one with another number, different.

    A slip is one letter, in a long mailbox or in the domain. Digits are no slip: they tell people of one name apart.
    """
    mailbox, _, domain = here.rpartition("@")
    other, _, elsewhere = there.rpartition("@")
    if domain == elsewhere:
        if _letters(mailbox) == _letters(other):
            return 3
        return 1 if _is_slip(mailbox, other) else 2
    return 1 if mailbox == other and _is_slip(domain, elsewhere) else 4


def _is_slip(here: str, there: str) -> bool:
    if min(len(here), len(there)) < LONG or OSA.distance(here, there, score_cutoff=1) > 1:
        return False
    return _digits(here) == _digits(there)


def _letters(text: str) -> str:
    return "".join(letter for letter in text if letter.isalpha())


def _digits(text: str) -> str:
    return "".join(letter for letter in text if letter.isdigit())


def words(here: str, there: str) -> int:
    """The same words in another order, with slips, with blanks elsewhere, or some of them left out; different."""
    if token_sort_ratio(here, there) >= ALIKE or token_set_ratio(here, there) >= CONTAINED:
        return 1
    return 1 if ratio(here.replace(" ", ""), there.replace(" ", "")) >= ALIKE else 2


def place(here: str, there: str) -> int:
    """Close, different."""
    return 1 if slips(here, there) or JaroWinkler.similarity(here, there) >= 0.93 else 2  # noqa: PLR2004 (of 1)


def code(here: str, there: str) -> int:
    """One slip, different."""
    return 1 if len(here) == len(there) and OSA.distance(here, there, score_cutoff=1) <= 1 else 2


def nothing_else(here: str, there: str) -> int:  # noqa: ARG001 (as the others)
    """Equal or not."""
    return 1
