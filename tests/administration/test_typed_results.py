"""Resolve as applied: what an operator types is read as the type that the function declares."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from onceward import Once
from onceward.administration import Action, Admin, Applied, ListingFilter, Preview, run
from onceward.results import AesGcm
from tests.console.visitor import Visitor, console_of


@dataclass
class Receipt:
    id: str
    cents: int


class Order(BaseModel):
    number: int
    total: Decimal


CASES: dict[str, tuple[Any, Any, Any]] = {
    "a dataclass": (Receipt, {"id": "r1", "cents": 2**62}, Receipt("r1", 2**62)),
    "a pydantic model": (Order, {"number": 7, "total": "12.50"}, Order(number=7, total=Decimal("12.50"))),
    "a decimal": (Decimal, "12.50", Decimal("12.50")),
    "a list of dataclasses": (list[Receipt], [{"id": "r1", "cents": 1}], [Receipt("r1", 1)]),
    "any value": (Any, {"paid": [1, 2]}, {"paid": [1, 2]}),
    "nothing": (Receipt | None, None, None),
}


def parking(once: Once, annotation: Any) -> Any:
    """Return a function that declares this return type, and whose first call parks its key."""

    def pay(n: int) -> Any:
        raise TimeoutError(f"no answer about {n}")

    pay.__annotations__["return"] = annotation
    decorated: Any = once(key="pay:{n}", name="pay", after_crash="park")(pay)
    with pytest.raises(TimeoutError):
        decorated(7)
    return decorated


def resolve(once: Once, value: Any) -> Applied:
    admin = Admin.of(once, who="ann")
    [row] = run(admin.keys(ListingFilter(prefix="pay:"))).rows
    preview = run(admin.preview(Action(verb="resolve", finding="applied", result=value), ids=[row.id]))
    return run(admin.apply(preview, why="the bank confirmed it"))


@pytest.mark.parametrize("cipher", [None, "encrypted"])
@pytest.mark.parametrize("case", CASES)
def test_a_delivery_gets_the_declared_type(case: str, cipher: str | None) -> None:
    annotation, typed, expected = CASES[case]
    keys = None if cipher is None else AesGcm({"k": b"0" * 32}, current="k")
    with Once("memory://", cipher=keys) as once:
        pay = parking(once, annotation)
        assert len(resolve(once, typed).done) == 1
        assert pay(7) == expected
        assert type(pay(7)) is type(expected)


@pytest.mark.parametrize(
    ("annotation", "typed"), [(Receipt, {"id": "r1"}), (Receipt, "r1"), (Order, {"number": "x"}), (Decimal, [])]
)
def test_a_result_of_another_type_is_refused(annotation: Any, typed: Any) -> None:
    """The preview says so, and a preview that was made by hand changes nothing either."""
    with Once("memory://") as once:
        pay = parking(once, annotation)
        admin = Admin.of(once, who="ann")
        [row] = run(admin.keys(ListingFilter(prefix="pay:"))).rows
        action = Action(verb="resolve", finding="applied", result=typed)
        preview = run(admin.preview(action, ids=[row.id]))
        assert preview.targets == []
        [reason] = preview.reasons
        assert "the declared type of the result" in reason
        applied = run(admin.apply(Preview(action, [preview.refused[0].target], []), why="the bank confirmed it"))
        assert (applied.done, applied.reasons) == ([], {reason: 1})
        assert once.audit() == []
        assert pay.outcome(7).kind == "parked"


def test_the_console_reads_the_result_as_the_type_and_says_what_is_wrong() -> None:
    with Once("memory://") as once:
        pay = parking(once, Receipt)
        visitor = Visitor(console_of(once))
        [row] = visitor.json("/parked?format=json")["parked"]
        form = {"action": "resolve-applied", "token": row["token"], "state": "PARKED", "key": row["key"], "why": "paid"}
        visitor.post(f"/keys/{row['id']}/act", {**form, "result": '{"id": "r1"}'})
        page = visitor.get(f"/keys/{row['id']}").text
        assert "the JSON is not a Receipt" in page
        assert "cents" in page
        visitor.post(f"/keys/{row['id']}/act", {**form, "result": '{"id": "r1", "cents": 5}'})
        assert pay(7) == Receipt("r1", 5)
