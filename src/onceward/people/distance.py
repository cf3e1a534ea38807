"""Compare two different texts. Each function returns a level: 1 is close, the highest is different.

Docstrings list the levels in order, starting with 1. Equal texts have level 0 and are not passed to these functions.
"""

from __future__ import annotations

from onceward.errors import MissingExtra

from .known_names import are_forms, are_known, are_two_names, is_known, sound
from .name_letters import is_like_a_name
from .normalise.names import GENERATIONS

try:
    from rapidfuzz.distance import OSA, JaroWinkler
    from rapidfuzz.fuzz import ratio, token_set_ratio, token_sort_ratio
except ImportError as missing:
    raise MissingExtra("onceward.people needs the module 'rapidfuzz'", hint="install onceward[people]") from missing

LONG_WORD = 8  # letters: from this length, two typos are as likely as one in a shorter word
HALF = 0.5  # of the letters
LONG_PLACE = 4  # letters: in a longer name of a place, two typos are tolerated
SIMILAR, CONTAINED = 80, 95  # percent
CONSECUTIVE = 20  # numbers: so many members of a family or a team get their numbers one after the other
FAR_FOR_TWINS = 10  # numbers: those of twins are closer, those of a team may be so far apart
OTHER_FORM = 2  # the level of given names that are forms of one name
LONG_NAME = 9  # letters: two names of this length that differ by one inner letter are spellings of one name
SHORT_WORD = 3  # letters: up to this length, one typo makes another word


def is_typo(here: str, there: str) -> bool:
    """Return whether one letter is wrong, missing or added, or two are swapped; in a long word, two such typos."""
    longer = max(len(here), len(there))
    if longer <= SHORT_WORD:
        return False
    allowed = 2 if longer >= LONG_WORD else 1
    return bool(OSA.distance(here, there, score_cutoff=allowed) <= allowed)


def are_alike(here: str, there: str) -> bool:
    """Return whether half of the letters are equal, in the same order: one may be the other with several typos."""
    return bool(OSA.normalized_similarity(here, there) >= HALF)


def given_name(here: str, there: str) -> int:
    """Levels: misspelt; a short or other form (`j`, `bob` and `robert`); a letter differs; different.

    Two common names are different. If a letter differs, and it is not clear that one of them is misspelt, both may be
    names, such as those of twins: `rahul` and `rahil`. Several words are compared one by one: `mohammed ali` and
    `mohammed amin` are two names.
    """
    shorter, longer = sorted((here, there), key=len)
    if _is_part(shorter, longer):
        return 2
    words, others = here.split(), there.split()
    if len(words) == len(others) > 1 and OSA.distance(here.replace(" ", ""), there.replace(" ", "")) > 1:
        return max(given_name(one, other) for one, other in zip(words, others, strict=True) if one != other)
    if sound(here.replace(" ", "")) == sound(there.replace(" ", "")):
        return 1
    if are_two_names(here, there):
        return 4
    if are_forms(here, there):
        return 2
    if are_known(here, there) or _differ_in_ending(here, there):
        return 4
    if is_typo(here, there):
        return 1 if _is_misspelt(here, there) else 3
    return 2 if len(shorter) >= SHORT_WORD and longer.startswith(shorter) else 4


def _is_misspelt(here: str, there: str) -> bool:
    """Return whether one of two similar names is certainly the other one with a typo.

    Twins share everything but the given name, and some parents choose names that differ by one letter: Rahul and Rahil,
    Karina and Darina. So one different letter does not prove a typo. It is a typo only if one spelling is a known name,
    and the other is an unknown one that begins with the same letter. One of these must also be true:

    - The unknown spelling has a sequence of letters that no name has: `patrkck`.
    - The known name is long, and an inner letter is wrong: `elizaseth`. Long names that differ so little are spellings
      of one name.
    """
    known, other = sorted((here, there), key=_is_unknown)
    if _is_unknown(known) or not _is_unknown(other) or known[0] != other[0]:
        return False
    if not all(map(is_like_a_name, other.split())):
        return True
    return len(known) >= LONG_NAME and known[-1] == other[-1] and OSA.distance(known, other) == 1


def _is_unknown(name: str) -> bool:
    return not all(map(is_known, name.split()))


def _is_part(shorter: str, longer: str) -> bool:
    """Return whether the shorter is an initial of the longer, or one or several of its words."""
    if len(shorter) == 1:
        return longer.startswith(shorter)
    words = longer.split()
    return len(words) > 1 and set(shorter.split()) <= {*words, *(word[0] for word in words)}


def _differ_in_ending(here: str, there: str) -> bool:
    """Return whether one is the female form of the other, as far as the ending shows: `rafik`, `rafika`."""
    one, other = sorted((here, there), key=lambda name: name.endswith("a"))
    return other.endswith("a") and other[:-1] == one.removesuffix("o") and len(other) > SHORT_WORD


def surname(here: str, there: str) -> int:
    """Levels: a typo; one is a part of the other (`muller`, `muller schmidt`); different.

    `muller`, `muller sen` and `muller jun` are different: they are father and son.
    """
    if _generation(here) != _generation(there):
        return 3
    if is_typo(here, there) or here.replace(" ", "") == there.replace(" ", ""):
        return 1
    words, others = here.split(), there.split()
    return 2 if len(words) != len(others) and (set(words) <= set(others) or set(others) <= set(words)) else 3


def _generation(surname: str) -> str:
    word = surname.rpartition(" ")[2]
    return word if word in GENERATIONS else ""


def birth_date(here: str, there: str) -> int:
    """Levels: a typo, or day and month swapped; two of three parts equal; different."""
    if OSA.distance(here, there, score_cutoff=1) <= 1:
        return 1
    first, second = here.split("-"), there.split("-")
    if sorted(first) == sorted(second):
        return 1
    return 2 if sum(map(str.__eq__, first, second)) == 2 else 3  # noqa: PLR2004 (of three)


def number(here: str, there: str) -> int:
    """Levels: a typo; different."""
    return 1 if len(here) > SHORT_WORD and OSA.distance(here, there, score_cutoff=1) <= 1 else 2


def assigned_number(here: str, there: str) -> int:
    """Levels: a typo; a typo of the last digit but one; a typo that may be the next number; different.

    Two swapped digits are a typo: such numbers are at least 9 apart, and those of a family follow each other closely.
    """
    if number(here, there) != 1:
        return 4
    if not (here.isdecimal() and there.isdecimal()) or sorted(here) == sorted(there):
        return 1
    apart = abs(int(here) - int(there))
    return 2 if apart == FAR_FOR_TWINS else 3 if apart < CONSECUTIVE else 1


def address(here: str, there: str) -> int:
    """Levels: a typo; another mailbox of the same domain; the same mailbox with another number; different.

    A typo is one letter, in a long mailbox name or in the domain. A different digit is not a typo: digits distinguish
    people of the same name.
    """
    mailbox, _, domain = here.rpartition("@")
    other, _, elsewhere = there.rpartition("@")
    if domain == elsewhere:
        if _letters(mailbox) == _letters(other):
            return 3
        return 1 if _is_address_typo(mailbox, other) else 2
    return 1 if mailbox == other and _is_address_typo(domain, elsewhere) else 4


def _is_address_typo(here: str, there: str) -> bool:
    if min(len(here), len(there)) < LONG_WORD or OSA.distance(here, there, score_cutoff=1) > 1:
        return False
    return _digits(here) == _digits(there)


def _letters(text: str) -> str:
    return "".join(letter for letter in text if letter.isalpha())


def _digits(text: str) -> str:
    return "".join(letter for letter in text if letter.isdigit())


def words(here: str, there: str) -> int:
    """Levels: the same words in another order, with typos, spaced differently, or with some omitted; different."""
    if token_sort_ratio(here, there) >= SIMILAR or token_set_ratio(here, there) >= CONTAINED:
        return 1
    return 1 if ratio(here.replace(" ", ""), there.replace(" ", "")) >= SIMILAR else 2


def street(here: str, there: str) -> int:
    """Levels: the same words in another order or with typos, and the same house number up to a typo; different."""
    numbers, others = (_digits(text) for text in (here, there))
    if numbers and others and OSA.distance(numbers, others, score_cutoff=1) > 1:
        return 2
    return words(here, there)


def place(here: str, there: str) -> int:
    """Levels: similar, also with letters in another order; different."""
    typos = 2 if max(len(here), len(there)) > LONG_PLACE else 1
    for one, other in ((here, there), ("".join(sorted(here)), "".join(sorted(there)))):
        if OSA.distance(one, other, score_cutoff=typos) <= typos:
            return 1
    return 1 if JaroWinkler.similarity(here, there) >= 0.93 else 2  # noqa: PLR2004 (of 1)


def code(here: str, there: str) -> int:
    """Levels: a typo; different."""
    return 1 if len(here) == len(there) and OSA.distance(here, there, score_cutoff=1) <= 1 else 2


def always_different(here: str, there: str) -> int:  # noqa: ARG001 (as the others)
    """Level 1: different. For kinds whose values are either equal or not."""
    return 1
