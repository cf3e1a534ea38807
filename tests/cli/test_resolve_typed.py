"""`onceward resolve --applied --result JSON --app …` stores what a call of the function would have stored."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onceward.cli.exit_codes import Exit
from onceward.cli.settings import VARIABLES
from onceward.errors import ResultNotStored
from tests.cli.calls import call

APP = """
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pydantic import BaseModel
from onceward import Once
from onceward.results import AesGcm

once = Once("sqlite:///onceward.db", app="shop", cipher=AesGcm(b"k" * 32), after_crash="park")

@dataclass
class Receipt:
    id: str
    amount: Decimal
    day: date

class Invoice(BaseModel):
    number: int

@once(name="charge", key="charge:{n}")
def charge(n: int) -> Receipt:
    raise TimeoutError

@once(name="wire", key="wire:{n}", window="forever")
def wire(n: int) -> str:
    raise TimeoutError

plain = Once("sqlite:///onceward.db", app="shop", after_crash="park")

@plain(name="mail", key="mail:{n}")
def mail(n: int) -> None:
    raise TimeoutError

@once(name="bill", key="bill:{n}")
def bill(n: int) -> list[Invoice]:
    raise TimeoutError
"""
RECEIPT = '{"id": "r1", "amount": "1.50", "day": "2026-01-31"}'


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A program with parked calls."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "typed_shop.py").write_text(APP)
    module = importlib.import_module("typed_shop")
    module.charge.outcome(7)
    module.bill.outcome(7)
    module.wire.outcome(7)
    module.mail.outcome(7)
    yield module
    module.once.close()
    module.plain.close()
    del sys.modules["typed_shop"]


def resolve(key: str, result: str, app: str) -> Any:
    return call("resolve", key, "--applied", "--result", result, "--app", app, "--yes")


@pytest.mark.finding("N15")
@pytest.mark.parametrize("name", ["once", "charge"])
def test_the_result_has_the_type_that_the_function_declares(shop: Any, name: str) -> None:
    assert resolve("charge:7", RECEIPT, f"typed_shop:{name}").exit_code == 0
    assert shop.charge(7) == shop.Receipt("r1", shop.Decimal("1.50"), shop.date(2026, 1, 31))
    assert resolve("bill:7", '[{"number": 1}]', "typed_shop:bill").exit_code == 0
    assert shop.bill(7) == [shop.Invoice(number=1)]


@pytest.mark.finding("N15")
@pytest.mark.parametrize(
    ("result", "app", "says"),
    [
        ('{"id": "r1"}', "typed_shop:charge", r"the JSON is not a Receipt.*amount"),
        ('"r1"', "typed_shop:once", "the JSON is not a Receipt"),
        (RECEIPT, "typed_shop:bill", "is the function of shop/bill, but this record belongs to shop/charge"),
        (RECEIPT, "typed_shop:Receipt", "declares no function for shop/charge"),
    ],
)
def test_another_type_or_function_is_refused_and_nothing_changes(shop: Any, result: str, app: str, says: str) -> None:
    refused = resolve("charge:7", result, app)
    assert refused.exit_code != 0
    assert "Traceback" not in refused.stderr
    assert re.search(says, refused.stderr), refused.stderr
    assert shop.charge.read(7).state == "PARKED"


@pytest.mark.parametrize("finding", ["--applied", "--abandon"])
def test_a_resolved_key_is_kept_for_the_window_that_its_operation_declares(shop: Any, finding: str) -> None:
    resolved = call("resolve", "wire:7", finding, "--yes")
    assert "until its window has ended: forever, as declared" in resolved.stderr
    assert shop.wire.read(7).valid_until is None
    resolved = call("resolve", "charge:7", finding, "--window", "forever", "--yes")
    assert "forever, from --window" in resolved.stderr
    assert shop.charge.read(7).valid_until is None


def test_a_key_without_a_declared_operation_is_kept_for_the_default_window(shop: Any) -> None:
    shop.once.outcome("by hand", raise_timeout)
    resolved = call("resolve", "by hand", "--abandon", "--yes")
    assert "lasting 1d, as declared" in resolved.stderr
    entry = shop.once.read("by hand")
    assert entry.valid_until - entry.updated_at == timedelta(hours=24)


def raise_timeout() -> None:
    raise TimeoutError


def test_without_a_result_a_call_says_so_and_is_not_run_again(shop: Any) -> None:
    assert call("resolve", "wire:7", "--applied", "--yes").exit_code == 0
    with pytest.raises(
        ResultNotStored, match=r"operator completed the key without a value .*pass --result to onceward resolve"
    ):
        shop.wire(7)
    assert call("resolve", "mail:7", "--applied", "--yes").exit_code == 0
    assert shop.mail(7) is None


def test_app_requires_applied(shop: Any) -> None:
    refused = call("resolve", "charge:7", "--abandon", "--app", "typed_shop:charge", "--yes")
    assert refused.exit_code == Exit.USAGE
    assert "--app requires --applied" in refused.stderr
