from __future__ import annotations

import copy
import hashlib
import operator
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from onceward.errors import ConfigurationError, InvalidKey, MissingKey, OncewardWarning
from onceward.keys.canonical import canonical
from onceward.keys.key import Scope, make_key
from onceward.keys.sources import Call, Content, JsonKey, Payload, Source, source_for
from onceward.keys.template import FirstOf, Template
from tests.unit.canonical_cases import Letter, Mail, Order, Parcel, Point


def same(source: Source, one: dict[str, object], other: dict[str, object]) -> bool:
    return canonical(source(one)[0]) == canonical(source(other)[0])


def test_each_kind_of_key_means_its_source() -> None:
    ready = Payload(["a"])
    assert isinstance(source_for("a:{x}"), Template)
    assert isinstance(source_for("nightly"), Template)
    assert isinstance(source_for(["{x}", "{y}"]), FirstOf)
    assert isinstance(source_for(lambda x: x), Call)
    assert isinstance(source_for(None), Payload)
    assert source_for(ready) is ready
    wrong: Any = 5
    with pytest.raises(ConfigurationError, match="key= cannot be int"):
        source_for(wrong)


# --- callables -------------------------------------------------------------------------------------------------------


@pytest.mark.mission("B6")
def test_a_callable_gets_the_parameters_that_it_names() -> None:
    arguments = {"order": {"id": 7}, "retries": 3}
    by_name: list[Any] = [
        lambda order: order["id"],
        lambda retries, order: order["id"] + retries - 3,
        lambda order, **rest: order["id"] + rest["retries"] - 3,
        lambda order, *, other=0: order["id"],
    ]
    for fn in by_name:
        source = Call(fn)
        source.check(list(arguments), has_var_keywords=False)
        assert source(arguments) == (7, "7")


def test_a_callable_with_other_names_is_called_like_the_function_itself() -> None:
    for fn in (lambda o, r: o["id"], lambda *args: args[0]["id"], lambda a, b, /: a["id"]):
        source = Call(fn)
        source.check(["order", "retries"], has_var_keywords=False)
        assert source({"order": {"id": 7}, "retries": 3})[0] == 7
    assert Call(operator.itemgetter("id"))({"order": {"id": 7}})[0] == 7


def test_a_callable_that_cannot_be_called_is_an_error_when_declared() -> None:
    for fn in (lambda other: 1, lambda a, b, c: 1, lambda: 1):
        with pytest.raises(ConfigurationError, match="order, retries"):
            Call(fn).check(["order", "retries"], has_var_keywords=False)

    async def later(order: object) -> object:
        return order

    with pytest.raises(ConfigurationError, match="async"):
        Call(later)


@pytest.mark.rival(30)
@pytest.mark.fault("F5")
@pytest.mark.parametrize("nothing", [None, "", b"", (), []])
def test_a_callable_that_returns_nothing_is_a_missing_key(nothing: object) -> None:
    with pytest.raises(MissingKey, match="returned"):
        Call(lambda x: nothing)({"x": 1})


# --- payload ---------------------------------------------------------------------------------------------------------


@pytest.mark.mission("B1")
def test_the_payload_is_all_arguments_or_the_named_ones() -> None:
    assert not same(Payload(), {"a": 1, "b": 2}, {"a": 1, "b": 3})
    assert same(Payload(["a"]), {"a": 1, "b": 2}, {"a": 1, "b": 3})
    assert same(Payload(), {"a": 1, "b": 2}, {"b": 2, "a": 1})


@pytest.mark.mission("B1")
def test_delivery_metadata_does_not_matter_at_any_depth() -> None:
    source = Payload(exclude=["timestamp", "body.meta.retry_count", "body.items.*.ts"])
    one: dict[str, object] = {
        "timestamp": 1,
        "body": {"meta": {"retry_count": 0, "id": 7}, "items": [{"ts": 1, "sku": "a"}, {"sku": "b", "ts": 2}]},
    }
    other: dict[str, object] = {
        "timestamp": 2,
        "body": {"meta": {"retry_count": 5, "id": 7}, "items": [{"ts": 8, "sku": "a"}, {"sku": "b", "ts": 9}]},
    }
    source.check(["timestamp", "body"], has_var_keywords=False)
    before = copy.deepcopy(one)
    assert same(source, one, other)
    assert one == before, "the payload is never changed"
    other["body"]["items"][0]["sku"] = "x"  # type: ignore[index]
    assert not same(source, one, other)


def test_paths_may_start_inside_of_an_only_argument() -> None:
    for exclude in (["ts"], ["payload.ts"]):
        source = Payload(exclude=exclude)
        source.check(["payload"], has_var_keywords=False)
        assert same(source, {"payload": {"ts": 1, "a": 1}}, {"payload": {"ts": 2, "a": 1}})
        assert not same(source, {"payload": {"ts": 1, "a": 1}}, {"payload": {"ts": 1, "a": 2}})


def test_an_excluded_entry_may_also_be_absent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OncewardWarning)
        assert same(Payload(exclude=["ts"]), {"p": {"ts": 1, "a": 1}}, {"p": {"a": 1}})


@pytest.mark.parametrize(
    ("one", "other", "different", "path"),
    [
        (Order(1, ["a"]), Order(2, ["a"]), Order(1, ["b"]), "id"),
        (Parcel(1, 2.0), Parcel(3, 2.0), Parcel(1, 3.0), "id"),
        (Point(1, 2), Point(3, 2), Point(1, 3), "x"),
        (OrderedDict(a=1, ts=1), OrderedDict(a=1, ts=2), {"a": 1, "ts": 1}, "ts"),
        ([Mail(id=1), 1], [Mail(id=2), 1], [Letter(1), 1], "0.id"),
        ((1, 2, 3), (9, 2, 3), (1, 2, 4), "0"),
        ({5: "x", "a": 1}, {5: "y", "a": 1}, {5: "x", "a": 2}, "5"),
    ],
)
def test_paths_reach_into_objects_lists_and_subclasses(
    one: object, other: object, different: object, path: str
) -> None:
    source = Payload(exclude=[f"p.{path}"])
    assert same(source, {"p": one}, {"p": other})
    assert not same(source, {"p": one}, {"p": different})


def test_an_object_less_a_field_keeps_its_class() -> None:
    source = Payload(exclude=["p.id"])
    assert not same(source, {"p": Order(1, [])}, {"p": {"id": 1, "lines": []}})


def test_an_excluded_path_that_does_not_occur_is_warned_about_once() -> None:
    source = Payload(exclude=["p.ts", "p.tss", "p.items.*.ts"])
    with pytest.warns(OncewardWarning, match=r"'p\.tss' does not occur") as caught:
        source({"p": {"ts": 1, "a": 1, "items": []}})
    assert len(caught) == 1
    source({"p": {"a": 1, "items": []}})  # a further warning would be an error here


def test_an_excluded_argument_that_does_not_exist_is_an_error_when_declared() -> None:
    with pytest.raises(ConfigurationError, match="'tss' is not a parameter"):
        Payload(exclude=["tss.x"]).check(["ts", "body"], has_var_keywords=False)
    with pytest.raises(ConfigurationError, match="'c' is not a parameter"):
        Payload(["c"]).check(["a", "b"], has_var_keywords=False)
    with pytest.raises(ConfigurationError, match="empty step"):
        Payload(exclude=["a..b"])
    text: Any = "meta.ts"
    with pytest.raises(ConfigurationError, match="not one string"):
        Payload(exclude=text)


def test_excluding_the_whole_payload_is_an_error() -> None:
    for exclude in (["a", "b"], ["*"]):
        with pytest.raises(ConfigurationError, match="whole payload"):
            Payload(exclude=exclude).check(["a", "b"], has_var_keywords=False)
    with pytest.raises(ConfigurationError, match="whole payload"):
        Payload(exclude=["p"]).check(["p"], has_var_keywords=False)
    for exclude in (["p.*"], ["p.a", "p.b"]):
        for payload in ({"a": 1, "b": 2}, Point(1, 2) if exclude == ["p.*"] else {"b": 1, "a": 2}):
            with pytest.raises(MissingKey, match="nothing of the payload is left"):
                Payload(exclude=exclude)({"p": payload})


def test_an_error_in_the_payload_names_the_place() -> None:
    with pytest.raises(InvalidKey, match=r"^p\.a\[0\]: "):
        canonical(Payload()({"p": {"a": [object()]}})[0], root="")


def test_a_function_without_parameters_has_a_key() -> None:
    value, text = Payload()({})
    assert make_key(Scope("a", "b"), value, text).text == "()"


# --- content and JSON ------------------------------------------------------------------------------------------------


@pytest.mark.mission("A1", "B6")
def test_content_of_an_argument(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"hello")
    expected = "sha256:" + hashlib.sha256(b"hello").hexdigest()
    source = Content("path")
    source.check(["path"], has_var_keywords=False)
    assert source({"path": file}) == (expected, expected)
    with pytest.raises(ConfigurationError, match="'path' is not a parameter"):
        source.check(["file"], has_var_keywords=False)
    with pytest.raises(MissingKey):
        source({"path": None})
    with pytest.raises(InvalidKey, match="Path"):
        source({"path": str(file)})


@pytest.mark.fault("F15")
def test_json_by_rfc_8785_from_values_and_from_text() -> None:
    source = JsonKey("body")
    expected = "json:sha256:" + hashlib.sha256(b'{"a":1,"b":[2.5]}').hexdigest()
    assert source({"body": {"b": [2.5], "a": 1.0}})[0] == expected
    assert source({"body": b'{ "b": [2.50], "a": 1 }'})[0] == expected
    with pytest.raises(InvalidKey, match="twice"):
        source({"body": b'{"a":1,"a":2}'})
