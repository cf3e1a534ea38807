from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from onceward.errors import ConfigurationError, InvalidKey, MissingKey
from onceward.keys.canonical import canonical
from onceward.keys.template import FirstOf, Template


@dataclass
class Order:
    id: Any


def identity(template: str, **arguments: object) -> bytes:
    return canonical(Template(template)(arguments)[0])


@pytest.mark.mission("B6")
def test_a_template_gives_a_key_and_a_readable_text() -> None:
    value, text = Template("email:{prospect_id}")({"prospect_id": 5, "body": "x"})
    assert text == "email:5"
    assert value == ["email:", "5", ""]


@pytest.mark.fault("F8")
def test_each_value_is_encoded_separately_so_that_separators_never_merge_two_keys() -> None:
    assert identity("{a}:{b}", a="a:b", b="c") != identity("{a}:{b}", a="a", b="b:c")
    assert identity("x:{a}", a="y") != identity("x:y")
    assert identity("{a}{b}", a="xy", b="z") != identity("{a}{b}", a="x", b="yz")


class Safe(str):
    """Like Django's SafeString: a subclass with its own text."""

    __slots__ = ()

    def __str__(self) -> str:
        return "overridden"


class Choice(str, enum.Enum):  # noqa: UP042 (like Django's TextChoices, whose str() is its value)
    SEVEN = "7"


class Number(enum.IntEnum):
    SEVEN = 7


SAME: list[tuple[str, list[Any]]] = [
    ("7", [7, "7", Safe("7"), Choice.SEVEN, Number.SEVEN, Decimal(7), Decimal("7.00"), Decimal("70E-1")]),
    ("1.1", ["1.1", Decimal("1.1"), Decimal("1.10")]),
    ("100", [100, Decimal("1E+2"), Decimal("100.0")]),
    ("0", [0, Decimal("-0.0"), Decimal("0E+9")]),
    ("-1.5", [Decimal("-1.50")]),
    ("1." + "0" * 40 + "1", [Decimal("1." + "0" * 40 + "1")]),  # more digits than the decimal context keeps
    ("12345678-1234-5678-1234-567812345678", [UUID("12345678-1234-5678-1234-567812345678")]),
    ("2026-01-31", [date(2026, 1, 31), "2026-01-31"]),
    (
        "2026-01-31T12:00:00+00:00",
        [datetime(2026, 1, 31, 12, tzinfo=UTC), datetime(2026, 1, 31, 14, tzinfo=timezone(timedelta(hours=2)))],
    ),
]


@pytest.mark.finding("N16")
@pytest.mark.parametrize(("text", "values"), SAME, ids=[text[:20] for text, _ in SAME])
def test_values_that_people_write_alike_are_one_key(text: str, values: list[Any]) -> None:
    for value in values:
        assert Template("{a}")({"a": value}) == (text, "")
        assert Template("charge:{a}")({"a": value}) == (["charge:", text, ""], f"charge:{text}")


REFUSED: list[Any] = [
    True, 1.0, b"x", ["x"], ("x",), {"x": 1}, object(), Order(1), timedelta(1), datetime(2026, 1, 31),  # noqa: DTZ001
    Decimal("NaN"), Decimal("Infinity"), Decimal("1E+999999"), Decimal("1E-999999"), 10**5000, 10**2000,
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),
]  # fmt: skip


@pytest.mark.finding("N16")
@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_a_value_without_one_usual_text_is_refused_and_its_placeholder_named(value: object) -> None:
    with pytest.raises(InvalidKey, match=r"the placeholder \{order\.id\} of the key .* →"):
        Template("charge:{order.id}")({"order": {"id": value}})


def test_a_renamed_parameter_keeps_its_keys() -> None:
    assert identity("email:{prospect}", prospect=5) == identity("email:{prospect_id}", prospect_id=5)


def test_a_constant_is_its_text_and_a_field_alone_the_text_of_its_value() -> None:
    assert Template("nightly {{run}}")({}) == ("nightly {run}", "nightly {run}")
    assert Template("{message_id}")({"message_id": "m1"}) == ("m1", "")  # people see the value itself


def test_fields_reach_into_mappings_sequences_and_objects() -> None:
    order = Order({"lines": [{"sku": "s1"}], 7: "seven"})
    for template in ("{o.id.lines.0.sku}".replace(".0", "[0]"), "{o[id][lines][0][sku]}"):
        assert Template(template)({"o": order})[0] == "s1"
    assert Template("{o.id[7]}")({"o": order})[0] == "seven"


@pytest.mark.rival(30)
@pytest.mark.fault("F5")
@pytest.mark.parametrize("order", [None, Order(None), Order(""), Order(b""), {}, {"id": None}, [], 5], ids=repr)
def test_a_field_without_a_value_is_refused_and_named(order: object) -> None:
    with pytest.raises(MissingKey, match=r"order:\{o\.id\}.* no value for o\.id"):
        Template("order:{o.id}")({"o": order})


def test_zero_is_a_value() -> None:
    assert Template("x:{a}")({"a": 0})[1] == "x:0"


def test_a_field_that_is_no_parameter_is_an_error_when_declared() -> None:
    with pytest.raises(ConfigurationError, match=r"'prospect'.*parameters are: prospect_id, body"):
        Template("email:{prospect}").check(["prospect_id", "body"], has_var_keywords=False)
    Template("email:{prospect.id}").check(["prospect"], has_var_keywords=False)
    Template("email:{anything}").check(["prospect"], has_var_keywords=True)


@pytest.mark.parametrize(
    "text", ["{}", "{0}", "{a:>5}", "{a!r}", "{a", "a}", "{a.}", "{a[}", "{a b}", "{a..b}", "{a[]}", ""]
)
def test_a_template_that_cannot_be_read_is_an_error_when_declared(text: str) -> None:
    with pytest.raises(ConfigurationError):
        Template(text)


def test_control_characters_are_escaped_in_the_text_only() -> None:
    value, text = Template("a:{x}")({"x": "\n\u202e"})
    assert text == r"a:\n\u202e"
    assert value == ["a:", "\n\u202e", ""]


def test_the_first_template_whose_fields_are_all_there_is_taken() -> None:
    source = FirstOf(["mail:{message_id}", "hash:{sender}:{subject}"])
    assert source({"message_id": "m", "sender": "s", "subject": "t"})[1] == "mail:m"
    assert source({"message_id": "", "sender": "s", "subject": "t"})[1] == "hash:s:t"
    assert source({"message_id": None, "sender": "s", "subject": 0})[1] == "hash:s:0"


@pytest.mark.rival(30)
@pytest.mark.fault("F5")
def test_if_no_template_is_complete_all_that_is_missing_is_named() -> None:
    source = FirstOf(["mail:{message_id}", "hash:{sender}:{subject}"])
    with pytest.raises(MissingKey, match="no value for message_id, subject"):
        source({"message_id": None, "sender": "s", "subject": ""})


def test_a_list_of_templates_is_checked_when_declared() -> None:
    with pytest.raises(ConfigurationError, match="'b'"):
        FirstOf(["{a}", "{b}"]).check(["a"], has_var_keywords=False)
    with pytest.raises(ConfigurationError, match="empty"):
        FirstOf([])


@pytest.mark.mission("A1")
@pytest.mark.parametrize("empty", [None, "", b"", [], (), {}, set(), frozenset(), enum.Enum("No", {"NO": ""}).NO])  # type: ignore[attr-defined]
def test_an_empty_value_names_nothing_whatever_its_type(empty: object) -> None:
    with pytest.raises(MissingKey, match="x"):
        Template("t:{x}")({"x": empty})
    assert FirstOf(["t:{x}", "u:{y}"])({"x": empty, "y": 0})[1] == "u:0"
