"""`@once` on functions: the identity of a call, and how it ends."""

from __future__ import annotations

import functools
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from onceward import ConfigurationError, Once, OncewardWarning, RecordState
from onceward.stores import MemoryStore
from tests.clients import SyncClient
from tests.unit.decorating import backend, decorated

__all__ = ["backend"]  # fixtures, imported here so that pytest finds them


# ── one effect, and its outcome ──


@pytest.mark.mission("B3")
def test_the_second_call_is_answered_from_the_record(client: SyncClient) -> None:
    effects: list[int] = []

    @client
    def charge(order: int) -> str:
        effects.append(order)
        return f"receipt {order}"

    first, second = charge.outcome(7), charge.outcome(7)
    assert (first.kind, first.executed, first.replayed, first.reason) == ("executed", True, False, "executed")
    assert (second.kind, second.executed, second.replayed, second.reason) == ("replayed", False, True, "replayed")
    assert first.value == second.value == charge(7) == "receipt 7"
    assert first.key == second.key == charge.key(7).text
    assert first.attempt == second.attempt == 1
    assert first.token == second.token > 0
    assert effects == [7]


@pytest.mark.rival(2)
@pytest.mark.parametrize("value", [None, 0, "", [], {}, False])
def test_an_empty_result_is_a_result(client: SyncClient, value: object) -> None:
    effects: list[int] = []

    @client
    def work() -> Any:
        effects.append(1)
        return value

    assert [work(), work()] == [value, value]
    assert effects == [1]


def test_read_returns_the_entry_and_forget_makes_the_next_call_run(client: SyncClient) -> None:
    effects: list[int] = []

    @client(key="charge:{order}")
    def charge(order: int) -> int:
        effects.append(order)
        return len(effects)

    assert charge.read(1) is None
    assert charge.forget(1) is False
    assert charge(1) == 1
    entry = charge.read(1)
    assert (entry.state, entry.value, entry.key, entry.stored) == (RecordState.COMPLETED, 1, "charge:1", True)
    assert charge.forget(1) is True
    assert charge.read(1) is None
    assert charge(1) == 2


# ── the default key ──


@pytest.mark.rival(9)
def test_how_an_argument_is_written_does_not_matter_and_defaults_are_filled_in(client: SyncClient) -> None:
    effects: list[int] = []

    @client
    def work(x: int, y: int = 2, *, z: int = 3) -> int:
        effects.append(x)
        return x + y + z

    calls = [work(1), work(x=1), work(1, 2), work(y=2, x=1), work(1, z=3), work(1, 2, z=3)]
    assert calls == [6] * 6
    assert effects == [1]
    assert work(2) == 7  # but another value is other work
    assert work(1, 3) == 7
    assert len(effects) == 3


@pytest.mark.rival(9)
def test_two_functions_of_the_same_name_in_different_modules_are_different_work(client: SyncClient) -> None:
    def module(name: str, answer: str) -> Any:
        made = ModuleType(name)
        exec(f"def send(x):\n    return {answer!r}", made.__dict__)
        return client(made.send)

    sales, billing = module("sales", "from sales"), module("billing", "from billing")
    assert sales.key(1).scope.operation == "sales.send"
    assert (sales(1), billing(1), sales(1)) == ("from sales", "from billing", "from sales")


def test_the_qualified_name_distinguishes_methods_of_two_classes(client: SyncClient) -> None:
    @dataclass
    class Mail:
        def send(self, x: int) -> str:
            return "mail"

    @dataclass
    class Letter:
        def send(self, x: int) -> str:
            return "letter"

    mail, letter = decorated(client, Mail.send), decorated(client, Letter.send)
    assert client.wait(mail(Mail(), 1)) == "mail"
    assert client.wait(letter(Letter(), 1)) == "letter"


@pytest.mark.parametrize("settings", [{"version": 1}, {"version": 2}, {"name": "other"}, {"tenant": "{x}"}])
def test_version_name_and_tenant_are_part_of_the_key(client: SyncClient, settings: dict[str, Any]) -> None:
    def work(x: str) -> str:
        return x

    assert client(**settings)(work).key("a").id != client(work).key("a").id
    assert client(**settings)(work).key("a") == client(**settings)(work).key("a")


def test_a_name_keeps_the_keys_of_a_function_that_moves(client: SyncClient) -> None:
    def before(x: int) -> str:
        return "before"

    def after(x: int) -> str:
        return "after"

    assert client(name="charge")(before)(1) == "before"
    with pytest.warns(OncewardWarning, match="both declared under the name 'charge'"):
        moved = client(name="charge")(after)
    assert moved(1) == "before"
    assert client(after)(1) == "after"


def test_applications_do_not_share_keys(client: SyncClient) -> None:
    def work(x: int) -> int:
        return x

    assert client.another(app="a")(work).key(1).id != client.another(app="b")(work).key(1).id


@pytest.mark.parametrize("fn", [lambda x: x, functools.partial(pow, 2)])
def test_what_has_no_name_of_its_own_must_be_given_one(fn: Any) -> None:
    once = Once(MemoryStore())
    with pytest.raises(ConfigurationError, match="name="):
        once(fn)
    assert once(name="anything")(fn)(3) == once(name="anything")(fn)(3)


def test_a_script_has_the_same_keys_as_the_module_that_it_is(tmp_path: Path) -> None:
    script = tmp_path / "billing.py"
    script.write_text(
        "from onceward import Once; from onceward.stores import MemoryStore\n"
        "once = Once(MemoryStore())\n"
        "@once\n"
        "def charge(x):\n    return x\n"
        "print(charge.key(1).scope.operation)\n"
    )
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__main__.py").write_text(script.read_text())
    ways = [["billing.py"], ["-m", "billing"], ["-c", "import billing"], ["-m", "shop"]]
    said = [
        subprocess.run([sys.executable, *way], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()
        for way in ways
    ]
    assert said == ["billing.charge", "billing.charge", "billing.charge", "shop.charge"]


def test_a_script_and_the_module_that_it_is_replay_each_others_results(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(
        "from dataclasses import dataclass\n"
        "from onceward import Once\n"
        "@dataclass\nclass Receipt:\n    number: int\n"
        "once = Once('sqlite:///jobs.db')\n"
        "@once(key='receipt:{number}')\n"
        "def receipt(number: int) -> Receipt:\n    return Receipt(number)\n"
        "def deliver(number):\n    print(receipt.outcome(number), receipt(number))\n"
        "if __name__ == '__main__':\n    deliver(1), deliver(2)\n"
    )
    ways = [["-c", "import jobs; jobs.deliver(1)"], ["jobs.py"], ["-c", "import jobs; jobs.deliver(2)"]]
    said = [
        subprocess.run([sys.executable, *way], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for way in ways
    ]
    assert said == [
        "executed Receipt(number=1)\n",
        "replayed Receipt(number=1)\nexecuted Receipt(number=2)\n",
        "replayed Receipt(number=2)\n",
    ]


def test_a_name_and_its_version_are_no_other_name(client: SyncClient) -> None:
    def charge(x: int) -> int:
        return x

    def operation(**settings: Any) -> str:
        scope: str = client(**settings)(charge).key(1).scope.operation
        return scope

    ways: list[dict[str, Any]] = [
        {"name": "charge"},
        {"name": "charge", "version": 1},
        {"name": "charge", "version": "1"},
        {"name": "charge:v1"},
        {"name": "charge", "version": "v1"},
        {"name": "charge:v1", "version": 1},
    ]
    assert len({operation(**way) for way in ways}) == len(ways)
    assert operation(name="charge:v1") == "charge:v1"  # the key of a name alone is its name
    with pytest.raises(ConfigurationError, match="version="):
        operation(name="charge#1")


@pytest.mark.rival(9)
def test_two_scripts_of_one_file_name_are_kept_apart_by_app(tmp_path: Path) -> None:
    for folder, app in (("a", "invoices"), ("b", "mails")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "main.py").write_text(
            "import sys\nfrom onceward import Once\n"
            f"once = Once('sqlite:///{tmp_path}/once.db', app=sys.argv[1] or '{app}')\n"
            "@once\n"
            f"def process(x):\n    return '{folder}'\n"
            "print(process(1))\n"
        )

    def outputs(app: str) -> list[str]:
        scripts = [tmp_path / "a" / "main.py", tmp_path / "b" / "main.py"]
        return [subprocess.check_output([sys.executable, script, app], text=True).strip() for script in scripts]

    assert outputs("shared") == ["a", "a"]  # as documented: the file's name alone does not distinguish them
    assert outputs("") == ["a", "b"]


def test_a_function_that_has_grown_an_argument_never_replays_what_it_did_without_it() -> None:
    """The old key contained every argument. It does not contain the new one, whose value back then is unknown."""
    with Once(MemoryStore()) as once:

        def charge(order: str) -> str:
            return order

        assert once(name="charge", key="{order}")(charge)("a") == "a"
        assert once(name="charge", key="{order}")(charge).outcome("a").replayed

        def charge_more(order: str, cents: int = 5) -> str:
            return f"{order}:{cents}"

        with pytest.warns(OncewardWarning, match="both declared"):
            grown = once(name="charge", key="{order}")(charge_more)
        assert grown.outcome("a", 7).kind == "mismatch"


KEYS: list[Any] = ["a", " ", "é", "a\u202e", "\n", "x" * 127, "x" * 201, "\x7f😀" + "y" * 198, "漢" * 60, 5, -5, 10**30]
KEYS += [0, Decimal("1.50"), date(2026, 1, 31)]


@pytest.mark.mission("A2")
@pytest.mark.parametrize("fingerprint", ["all", "none"])
@pytest.mark.parametrize("value", KEYS)
def test_a_key_that_is_one_argument_alone_is_the_same_by_whichever_way_it_is_made(value: Any, fingerprint: Any) -> None:
    """The argument is read from the call without binding the others, if nothing else is compared."""
    once = Once(MemoryStore(), fingerprint=fingerprint)

    @once(key="{order}")
    def alone(order: Any) -> None: ...

    assert alone.job((value,), {}).key == alone.job((), {"order": value}).key == alone.key(value)
    if isinstance(value, str):
        assert alone.key(value).id == once.key(value, name=alone.operation.name).id
