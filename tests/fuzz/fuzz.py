"""Call targets with random inputs, and report the first input that breaks one."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from tests.fuzz.mutation import mutated
from tests.fuzz.targets import TARGETS

SLOW = 20.0
"""Seconds for one input. More is a bug too, unless the machine is very busy."""


class Broken(AssertionError):
    """An input broke a target. The message is enough to repeat it."""


def fuzz(name: str, seed: int, count: int) -> Iterator[int]:
    """Call one target with `count` inputs. Yield after each, so that the caller may stop at a deadline."""
    target = TARGETS[name]
    dice = random.Random(f"{name} {seed}")
    for number in range(count):
        data = mutated(dice, target.seeds)
        try_input(name, data, f"seed {seed}, input {number}")
        yield number


def try_input(name: str, data: bytes, where: str) -> None:
    """Call one target with one input. Raise `Broken` if it raises an undeclared error, or takes too long."""
    target = TARGETS[name]
    begin = time.process_time()
    try:
        target.call(data)
    except target.errors:
        pass
    except Exception as error:
        raise Broken(f"{name}, {where}: {type(error).__name__}: {error}\n{data[:2000]!r}") from error
    if time.process_time() - begin > SLOW:
        raise Broken(f"{name}, {where}: took more than {SLOW} seconds\n{data[:2000]!r}")
