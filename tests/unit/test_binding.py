"""From a call to its arguments by name: as Python itself binds them, only quicker."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.operations.binding import Binding


def plain(a: int, b: int = 2) -> None: ...
def keywords(a: int, *, b: int = 2, c: int) -> None: ...
def positions(a: int, b: int = 2, /, c: int = 3) -> None: ...
def many(a: int, *args: int, b: int = 2) -> None: ...
def any_keyword(a: int, **kwargs: int) -> None: ...
def everything(a: int, /, b: int, *args: int, c: int = 3, **kwargs: int) -> None: ...
def nothing() -> None: ...


@pytest.mark.rival(9)
@pytest.mark.parametrize(
    ("fn", "args", "kwargs", "bound"),
    [
        (plain, (1,), {}, {"a": 1, "b": 2}),
        (plain, (), {"a": 1}, {"a": 1, "b": 2}),
        (plain, (1, 2), {}, {"a": 1, "b": 2}),
        (keywords, (1,), {"c": 3}, {"a": 1, "b": 2, "c": 3}),
        (positions, (1,), {"c": 4}, {"a": 1, "b": 2, "c": 4}),
        (many, (1,), {}, {"a": 1, "args": (), "b": 2}),
        (many, (1, 2, 3), {"b": 4}, {"a": 1, "args": (2, 3), "b": 4}),
        (any_keyword, (1,), {"x": 5}, {"a": 1, "x": 5}),
        (everything, (1, 2, 3), {"x": 5}, {"a": 1, "b": 2, "args": (3,), "c": 3, "x": 5}),
        (nothing, (), {}, {}),
    ],
)
def test_arguments_stand_under_their_names(fn: Any, args: Any, kwargs: Any, bound: dict[str, Any]) -> None:
    assert Binding(fn).bind(*args, **kwargs) == bound


def test_keywords_with_the_name_of_another_parameter_are_kept_apart() -> None:
    """Two calls that differ must not become one."""

    def variadic(*args: int, **kwargs: int) -> None: ...
    def positional(x: int, /, **kwargs: int) -> None: ...

    bind = Binding(variadic).bind
    assert bind(1, args=2) == {"args": (1,), "**kwargs": {"args": 2}}
    assert bind(9, args=2) != bind(1, args=2)
    assert bind(1, **{"**kwargs": {"args": 2}}) != bind(1, args=2)
    bind = Binding(positional).bind
    assert bind(1, x=2) == {"x": 1, "**kwargs": {"x": 2}}
    assert bind(1, y=2) == {"x": 1, "y": 2}


@given(
    args=st.lists(st.integers(0, 1), max_size=2),
    kwargs=st.dictionaries(st.sampled_from(["a", "args", "x", "**kwargs"]), st.integers(0, 1), max_size=3),
    other_args=st.lists(st.integers(0, 1), max_size=2),
    other_kwargs=st.dictionaries(st.sampled_from(["a", "args", "x", "**kwargs"]), st.integers(0, 1), max_size=3),
)
def test_no_two_different_calls_are_bound_alike(
    args: list[int], kwargs: dict[str, int], other_args: list[int], other_kwargs: dict[str, int]
) -> None:
    def fn(a: int = 7, /, *args: int, **kwargs: int) -> None: ...

    bind = Binding(fn).bind
    alike = bind(*args, **kwargs) == bind(*other_args, **other_kwargs)
    assert alike == ((args, kwargs) == (other_args, other_kwargs))


@pytest.mark.parametrize(
    "names",
    ["bound", "_merged", "_merged_", "_default_0", "dict", "self_", "args", "named", "others"],
)
def test_a_parameter_may_have_any_name(names: str) -> None:
    space: dict[str, Any] = {}
    exec(f"def fn({names}=1, *, z=2, **more): ...", space)
    assert Binding(space["fn"]).bind(3, y=4) == {names: 3, "z": 2, "y": 4}


def test_a_default_is_the_very_object() -> None:
    marker = object()

    def fn(x: object = marker) -> None: ...

    assert Binding(fn).bind()["x"] is marker


@pytest.mark.parametrize("call", [{}, {"a": 1, "b": 2, "c": 3}, {"b": 1}])
def test_a_call_that_does_not_fit_names_the_function(call: dict[str, int]) -> None:
    with pytest.raises(TypeError, match=r"plain\(\)"):
        Binding(plain).bind(**call)


def test_names_receiver_and_keywords_are_known() -> None:
    class Till:
        def take(self, order: int, **more: int) -> None: ...
        @classmethod
        def make(cls, order: int) -> None: ...

    assert Binding(Till.take).names == ("self", "order")
    assert (Binding(Till.take).receiver, Binding(Till.take).has_var_keywords) == ("self", True)
    assert (Binding(Till().take).receiver, Binding(Till().take).names) == (None, ("order",))
    assert Binding(Till.__dict__["make"].__func__).receiver == "cls"
    assert (Binding(plain).receiver, Binding(plain).has_var_keywords) == (None, False)


def test_callables_of_other_kinds() -> None:
    class Adder:
        def __call__(self, x: int, y: int = 1) -> int:
            return x + y

    assert Binding(Adder()).bind(2) == {"x": 2, "y": 1}
    assert Binding(functools.partial(plain, b=5)).bind(1) == {"a": 1, "b": 5}
    assert Binding(len).bind([1]) == {"obj": [1]}
    assert Binding(print).bind(1, 2, sep="-")["args"] == (1, 2)
    assert Binding(dict).bind(1, x=2) == {"args": (1,), "x": 2}  # has no signature


@given(st.data())
def test_binds_as_the_standard_library_does(data: st.DataObject) -> None:
    fn: Any = data.draw(st.sampled_from([plain, keywords, positions, many]))
    args = data.draw(st.lists(st.integers(), max_size=4))
    kwargs = data.draw(st.dictionaries(st.sampled_from("abc"), st.integers(), max_size=3))
    try:
        expected = inspect.signature(fn).bind(*args, **kwargs)
    except TypeError:
        with pytest.raises(TypeError):
            Binding(fn).bind(*args, **kwargs)
        return
    expected.apply_defaults()
    assert Binding(fn).bind(*args, **kwargs) == expected.arguments
