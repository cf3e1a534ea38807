"""Random changes to valid inputs. The same seed gives the same inputs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

TOKENS = (
    b"\x00", b"\xff", b"\xfe\xff", b"\xed\xa0\x80", b"\n", b"\r\n", b'"', b"'", b"\\", b"%", b"%00", b"%FF", b"{", b"}",
    b"[" * 300, b"null", b"true", b"-1", b"1e999", b"1e99999999999999999999", b"9" * 5000, b"NaN", b"\\ud800", b";=1+1",
    b"=", b",", b":", b"@", b"//", b"://", b"..", b"\xc1", b"\xc7\xff", b"\xdd\xff\xff\xff\xff",
    b"\xdf\x7f\xff\xff\xff",
)  # fmt: skip
MOST_CHANGES = 6
LARGEST = 200_000
"""Bytes of an input. Insertions repeat, so that inputs would otherwise grow without end."""


def mutated(dice: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Return one of the seeds with a few random changes; sometimes random bytes."""
    if dice.random() < 0.02:
        return dice.randbytes(dice.randrange(64))
    data = bytearray(dice.choice(seeds))
    for _ in range(dice.randint(1, MOST_CHANGES)):
        dice.choice(CHANGES)(dice, data, seeds)
    return bytes(data[:LARGEST])


def _flip(dice: random.Random, data: bytearray, _seeds: Sequence[bytes]) -> None:
    if data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _replace(dice: random.Random, data: bytearray, _seeds: Sequence[bytes]) -> None:
    if data:
        data[dice.randrange(len(data))] = dice.randrange(256)


def _insert(dice: random.Random, data: bytearray, _seeds: Sequence[bytes]) -> None:
    at = dice.randint(0, len(data))
    data[at:at] = dice.choice(TOKENS)


def _delete(dice: random.Random, data: bytearray, _seeds: Sequence[bytes]) -> None:
    at = dice.randint(0, len(data))
    del data[at : at + dice.randint(1, 8)]


def _truncate(dice: random.Random, data: bytearray, _seeds: Sequence[bytes]) -> None:
    del data[dice.randint(0, len(data)) :]


def _repeat(dice: random.Random, data: bytearray, _seeds: Sequence[bytes]) -> None:
    at = dice.randint(0, len(data))
    data[at:at] = data[at : at + dice.randint(1, 32)] * dice.randint(1, 4)


def _splice(dice: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    other = dice.choice(seeds)
    data[dice.randint(0, len(data)) :] = other[dice.randint(0, len(other)) :]


CHANGES: tuple[Callable[[random.Random, bytearray, Sequence[bytes]], None], ...] = (
    _flip,
    _replace,
    _insert,
    _delete,
    _truncate,
    _repeat,
    _splice,
)
