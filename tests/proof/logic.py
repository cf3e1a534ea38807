"""Conditions that the search evaluates as booleans and the proof as formulas.

A promise is written once, with these functions. They compare everything that can differ between two records of the same
shape (numbers, flags). The shape itself (the state, which times are missing) is plain Python in both.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import z3

Promise = tuple[str, Any]
"""A sentence, and the condition under which it holds."""


class Symbol:
    """An unknown value: arithmetic and comparisons build formulas instead of results."""

    __slots__ = ("name", "term")
    __hash__ = None  # type: ignore[assignment]  # two symbols may turn out equal

    def __init__(self, term: Any) -> None:
        self.term = term
        self.name = term.get_id()  # equal formulas have one, as long as one of them is kept: see `_build`

    def __eq__(self, other: object) -> Any:
        return _build(operator.eq, self, other)

    def __ne__(self, other: object) -> Any:
        return _build(operator.ne, self, other)

    def __lt__(self, other: object) -> Symbol:
        return _build(operator.lt, self, other)

    def __le__(self, other: object) -> Symbol:
        return _build(operator.le, self, other)

    def __gt__(self, other: object) -> Symbol:
        return _build(operator.gt, self, other)

    def __ge__(self, other: object) -> Symbol:
        return _build(operator.ge, self, other)

    def __add__(self, other: object) -> Symbol:
        return _build(operator.add, self, other)

    def __radd__(self, other: object) -> Symbol:
        return _build(operator.add, other, self)

    def __sub__(self, other: object) -> Symbol:
        return _build(operator.sub, self, other)

    def __rsub__(self, other: object) -> Symbol:
        return _build(operator.sub, other, self)

    def __floordiv__(self, other: int) -> Symbol:
        return _build(operator.truediv, self, other)  # z3 divides whole numbers by a positive one as Python's // does

    def __bool__(self) -> bool:
        if not z3.is_bool(self.term):
            return bool(self != 0)
        if fork is None:
            raise TypeError(f"the value of {self.term} is not known outside of `paths`")
        return fork(self)

    def __repr__(self) -> str:
        return str(self.term)


fork: Callable[[Symbol], bool] | None = None
"""Decides which branch an `if` takes while product code runs on symbols. See `paths`."""

_built: dict[tuple[Any, ...], Symbol] = {}


def _build(make: Callable[..., Any], *parts: Any) -> Symbol:
    """Build each formula only once: the same few thousand recur, and building them in z3 from Python is slow."""
    key = (make, *[part.name if isinstance(part, Symbol) else (part,) for part in parts])
    found = _built.get(key)
    if found is None:
        found = _built[key] = Symbol(make(*[formula(part) for part in parts]))
    return found


def simplified(one: Symbol) -> Symbol:
    """Return z3's normal form of the condition, so that equivalent conditions are equal."""
    return _build(z3.simplify, one)


def constant_value(one: Symbol) -> bool | None:
    """Return whether the condition always or never holds; None if that depends on the values."""
    term = simplified(one).term
    return True if z3.is_true(term) else False if z3.is_false(term) else None


@cache
def number(name: str) -> Any:
    return Symbol(z3.Int(name))


@cache
def flag(name: str) -> Any:
    return Symbol(z3.Bool(name))


def formula(value: Any) -> Any:
    """Return the value as a z3 term. `NO_OWNER` is 0."""
    if isinstance(value, Symbol):
        return value.term
    if isinstance(value, bool):
        return z3.BoolVal(value)
    return z3.IntVal(int.from_bytes(value) if isinstance(value, bytes) else value)


def negate(one: Any) -> Any:
    return _build(z3.Not, one) if isinstance(one, Symbol) else not one


def all_of(*parts: Any) -> Any:
    unknown = []
    for part in parts:
        if part is False:
            return False
        if part is not True:
            unknown.append(part)
    return _build(_and, *unknown) if unknown else True


def any_of(*parts: Any) -> Any:
    unknown = []
    for part in parts:
        if part is True:
            return True
        if part is not False:
            unknown.append(part)
    return _build(_or, *unknown) if unknown else False


def _and(*terms: Any) -> Any:
    return _joined(z3.Z3_mk_and, terms)


def _or(*terms: Any) -> Any:
    return _joined(z3.Z3_mk_or, terms)


def _joined(make: Callable[..., Any], terms: tuple[Any, ...]) -> Any:
    """Like z3.And and z3.Or, without their check of every argument, which takes longer than the proof."""
    context = terms[0].ctx
    return z3.BoolRef(make(context.ref(), len(terms), (z3.Ast * len(terms))(*(one.as_ast() for one in terms))), context)


def implies(premise: Any, conclusion: Any) -> Any:
    return any_of(negate(premise), conclusion)


def choose(condition: Any, yes: Any, no: Any) -> Any:
    if isinstance(condition, Symbol):
        return _build(z3.If, condition, yes, no)
    return yes if condition else no


def larger(one: Any, other: Any) -> Any:
    return choose(one >= other, one, other)


def given(premise: Any, promises: Iterable[Promise]) -> Iterator[Promise]:
    """Yield the promises under a premise. They are not evaluated at all if the premise is False."""
    if premise is True:
        yield from promises
    elif premise is not False:
        for sentence, condition in promises:
            yield sentence, implies(premise, condition)
