"""The model: how likely each degree of agreement is, and how frequent each name is.

The default model has general estimates. `People.train` computes a model from your own records. A model is fixed while
records are added: the confidence of a pair depends on its two records only, so the order of input does not matter.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from .known_names import COMMON

COMMON_GIVEN_NAME: Final = 0.012
OTHER_GIVEN_NAME: Final = 0.004
OTHER_SURNAME: Final = 0.002
"""How many of all people have this name, without a trained model. One in 500 is a very common surname."""


class Model(Struct, frozen=True, omit_defaults=True):
    """What was learned from records. The defaults are the general estimates."""

    same: float = 1e-5
    """Prior probability that two records are of the same person: one record in 100,000."""

    household: float = 1e-5
    """Prior probability that two records are of two members of one household."""

    levels: dict[str, dict[str, tuple[float, float]]] = {}
    """By field and level: how often records of one person, and of strangers, agree to this degree."""

    given_names: dict[str, float] = {}
    surnames: dict[str, float] = {}
    """The share of people with each frequent name."""

    other_given_name: float = OTHER_GIVEN_NAME
    other_surname: float = OTHER_SURNAME
    """The share of people with each name that is not listed."""

    records: int = 0
    """How many records it was trained with. 0: the default model."""

    answers: int = 0
    """How many answers of operators it was trained with."""

    def given_name_share(self, name: str) -> float:
        if self.records:
            return self.given_names.get(name, self.other_given_name)
        return COMMON_GIVEN_NAME if name in COMMON else OTHER_GIVEN_NAME

    def surname_share(self, name: str) -> float:
        return self.surnames.get(name, self.other_surname)


DEFAULT_MODEL: Final = Model()
