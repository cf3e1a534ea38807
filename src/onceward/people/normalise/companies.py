"""Company names, without the legal form."""

from __future__ import annotations

from typing import Final

from .text import fold

_LIST: Final = """
ab ag aps as asa bv bvba co company corp corporation doo eg ek ev gbr gesmbh gmbh inc incorporated kft kg kgaa kk
limited
limitada llc llp lp ltd ltda nv oao ohg ooo oy oyj plc pllc pte pty pvt sa sarl sas sasu sca scs se sicav sl slu snc spa
spol spzoo sro srl ug und and et mbh y
"""
_FORMS: Final = frozenset(_LIST.split())
"""Legal forms, and the words that connect them, as in `GmbH & Co. KG`."""

_SPELT: Final = (
    (" sp z o o", " spzoo"),
    (" s p a", " spa"),
    (" s r l", " srl"),
    (" s a r l", " sarl"),
    (" s a s", " sas"),
    (" s a", " sa"),
    (" b v", " bv"),
    (" n v", " nv"),
    (" l l c", " llc"),
    (" p l c", " plc"),
    (" e k", " ek"),
    (" e v", " ev"),
    (" d o o", " doo"),
    (" s r o", " sro"),
    (" a s", " as"),
    (" k k", " kk"),
)


def company(text: str) -> str:
    """`ACME Sp. z o.o.` → `acme`; `Müller & Söhne GmbH & Co. KG` → `muller sohne`."""
    folded = fold(text)
    for spelt, form in _SPELT:
        if folded.endswith(spelt):
            folded = folded.removesuffix(spelt) + form
    words = folded.split()
    kept = list(words)
    while len(kept) > 1 and kept[-1] in _FORMS:
        del kept[-1]
    kept = [word for word in kept if word not in ("and", "und", "et", "the")]
    return " ".join(kept or words)
