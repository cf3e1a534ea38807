"""What the fingerprint of a call covers: `fingerprint=` takes what `key=` takes, and the key's own arguments not."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from onceward import ConfigurationError, Content, JsonKey, Once, OncewardWarning, Payload
from tests.clients import SyncClient
from tests.unit.decorating import backend

__all__ = ["backend"]


def charge(order_id: Any, cents: int = 500) -> str:
    return f"charged {cents}"


@pytest.mark.finding("N16")
@pytest.mark.parametrize("settings", [{}, {"fingerprint": ["order_id", "cents"]}, {"fingerprint": Payload()}])
@pytest.mark.parametrize("key", ["charge:{order_id}", ["charge:{order_id}", "{cents}"]], ids=["one", "list"])
def test_an_argument_that_the_template_uses_is_compared_as_the_key_only(
    client: SyncClient, key: Any, settings: dict[str, Any]
) -> None:
    work = client(key=key, **settings)(charge)
    kinds = [work.outcome(one).kind for one in (7, "7", Decimal("7.0"))]
    assert kinds == ["executed", "replayed", "replayed"]
    assert work.outcome("7", 900).arguments == ("cents",)


ORDER = {"id": 7, "total": 500, "meta": {"sent_at": 1}}
LATER = {"id": 7, "total": 500, "meta": {"sent_at": 2}}
OTHER = {"id": 7, "total": 900, "meta": {"sent_at": 1}}


@pytest.mark.finding("N18")
@pytest.mark.parametrize(
    ("fingerprint", "differs_in"),
    [
        (Payload(exclude=["order.meta"]), ("order",)),
        (Payload(exclude=["meta.sent_at"]), ("order",)),
        (["order.total"], ("order.total",)),
        ("{order.total}", ("fingerprint",)),
        (["{order.absent}", "{order.total}"], ("fingerprint",)),
        (lambda order: order["total"], ("fingerprint",)),
    ],
    ids=["exclude", "inside", "path", "template", "templates", "callable"],
)
def test_a_fingerprint_covers_nested_parts(client: SyncClient, fingerprint: Any, differs_in: tuple[str, ...]) -> None:
    def pay(order: dict[str, Any]) -> str:
        return "paid"

    work = client(key="pay:{order.id}", fingerprint=fingerprint)(pay)
    assert [work.outcome(one).kind for one in (ORDER, LATER, OTHER)] == ["executed", "replayed", "mismatch"]
    assert work.outcome(OTHER).arguments == differs_in


@pytest.mark.finding("N18")
def test_a_fingerprint_covers_content_and_json(client: SyncClient, tmp_path: Path) -> None:
    def store(name: str, body: Any) -> str:
        return name

    by_content = client(key="{name}", fingerprint=Content("body"), name="content")(store)
    first, same, other = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    for file, content in ((first, "x"), (same, "x"), (other, "y")):
        file.write_text(content)
    assert [by_content.outcome("n", one).kind for one in (first, same, other)] == ["executed", "replayed", "mismatch"]
    by_json = client(key="{name}", fingerprint=JsonKey("body"), name="json")(store)
    bodies = (b'{"a": 1, "b": 2}', b'{"b":2,"a":1}', b'{"a": 2}')
    assert [by_json.outcome("n", body).kind for body in bodies] == ["executed", "replayed", "mismatch"]


@pytest.mark.finding("N18")
def test_a_method_is_compared_without_its_object(client: SyncClient) -> None:
    once = Once("memory://")

    class Shop:
        @once(key="{order[id]}", fingerprint=Payload(exclude=["meta"]))
        def pay(self, order: dict[str, Any]) -> str:
            return "paid"

    assert [Shop().pay.outcome(one).kind for one in (ORDER, LATER, OTHER)] == ["executed", "replayed", "mismatch"]


@pytest.mark.finding("N18")
def test_a_fingerprint_without_a_value_is_a_value(client: SyncClient) -> None:
    work = client(key="{order_id}", fingerprint=lambda cents: cents or None)(charge)
    assert [work.outcome(7, cents).kind for cents in (0, 0, 1)] == ["executed", "replayed", "mismatch"]


@pytest.mark.finding("N18")
@pytest.mark.parametrize(
    ("fingerprint", "says"),
    [
        ("order_id", r"fingerprint cannot be 'order_id' → .*what key= takes"),
        (7, "fingerprint cannot be 7"),
        ("{nothing}", r"charge: the fingerprint template '\{nothing\}' names 'nothing'"),
        (["nothing.total"], r"charge: fingerprint names 'nothing'"),
        (["order_id.*.total"], r"Payload\(exclude="),
        (["order_id..total"], "has an empty step"),
        (Payload(["nothing"]), "charge: 'nothing' is not a parameter"),
        (lambda customer, place, more: 1, "charge: the fingerprint function .* does not fit"),
    ],
)
def test_a_fingerprint_that_no_call_has_is_refused_while_decorating(
    client: SyncClient, fingerprint: Any, says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        client(key="{order_id}", fingerprint=fingerprint)(charge)


@pytest.mark.finding("N18")
def test_a_path_that_never_occurs_causes_a_warning() -> None:
    pay = Once("memory://")(key="{order.id}", fingerprint=["order.totl"])(lambda_free)
    with pytest.warns(OncewardWarning, match=r"'order\.totl' of fingerprint= does not occur"):
        pay(ORDER)


def lambda_free(order: dict[str, Any]) -> None: ...
