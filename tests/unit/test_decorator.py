"""`@once` on functions, methods and static methods: who a call is, and what it looks like from outside."""

from __future__ import annotations

import asyncio
import functools
import inspect
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from onceward import AsyncOnce, ConfigurationError, InvalidKey, MemoryStore, Once, OncewardWarning, State
from onceward.testing import FakeClock
from tests.faces import Face, Place


@pytest.fixture
def place(tmp_path: Path, clock: FakeClock) -> Place:
    """Memory is enough here: nothing in this file depends on the store."""
    return Place("memory", tmp_path, clock)


def decorated(face: Face, fn: Any, **settings: Any) -> Any:
    """The decorated function itself, without the adapter that calls it."""
    return face.once(**settings)(face._work(fn)) if settings else face.once(face._work(fn))


# ── one effect, and the outcome tells ──


@pytest.mark.mission("B3")
def test_the_second_call_is_answered_from_the_record(face: Face) -> None:
    effects: list[int] = []

    @face
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
def test_an_empty_result_is_a_result(face: Face, value: object) -> None:
    effects: list[int] = []

    @face
    def work() -> Any:
        effects.append(1)
        return value

    assert [work(), work()] == [value, value]
    assert effects == [1]


def test_read_tells_and_forget_makes_the_next_call_run(face: Face) -> None:
    effects: list[int] = []

    @face(key="charge:{order}")
    def charge(order: int) -> int:
        effects.append(order)
        return len(effects)

    assert charge.read(1) is None
    assert charge.forget(1) is False
    assert charge(1) == 1
    entry = charge.read(1)
    assert (entry.state, entry.value, entry.key, entry.stored) == (State.COMPLETED, 1, "charge:1", True)
    assert charge.forget(1) is True
    assert charge.read(1) is None
    assert charge(1) == 2


# ── the default key ──


@pytest.mark.rival(9)
def test_how_an_argument_is_written_does_not_matter_and_defaults_are_filled_in(face: Face) -> None:
    effects: list[int] = []

    @face
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
def test_two_functions_of_the_same_name_in_different_modules_are_different_work(face: Face) -> None:
    def module(name: str, answer: str) -> Any:
        made = ModuleType(name)
        exec(f"def send(x):\n    return {answer!r}", made.__dict__)
        return face(made.send)

    sales, billing = module("sales", "from sales"), module("billing", "from billing")
    assert sales.key(1).scope.operation == "sales.send"
    assert (sales(1), billing(1), sales(1)) == ("from sales", "from billing", "from sales")


def test_the_qualified_name_tells_methods_of_two_classes_apart(face: Face) -> None:
    @dataclass
    class Mail:
        def send(self, x: int) -> str:
            return "mail"

    @dataclass
    class Letter:
        def send(self, x: int) -> str:
            return "letter"

    mail, letter = decorated(face, Mail.send), decorated(face, Letter.send)
    assert face._wait(mail(Mail(), 1)) == "mail"
    assert face._wait(letter(Letter(), 1)) == "letter"


@pytest.mark.parametrize("settings", [{"version": 1}, {"version": 2}, {"name": "other"}, {"tenant": "{x}"}])
def test_version_name_and_tenant_are_part_of_the_key(face: Face, settings: dict[str, Any]) -> None:
    def work(x: str) -> str:
        return x

    assert face(**settings)(work).key("a").id != face(work).key("a").id
    assert face(**settings)(work).key("a") == face(**settings)(work).key("a")


def test_a_name_keeps_the_keys_of_a_function_that_moves(face: Face) -> None:
    def before(x: int) -> str:
        return "before"

    def after(x: int) -> str:
        return "after"

    assert face(name="charge")(before)(1) == "before"
    with pytest.warns(OncewardWarning, match="both declared under the name 'charge'"):
        moved = face(name="charge")(after)
    assert moved(1) == "before"
    assert face(after)(1) == "after"


def test_applications_do_not_share_keys(face: Face) -> None:
    def work(x: int) -> int:
        return x

    assert face.another(app="a")(work).key(1).id != face.another(app="b")(work).key(1).id


@pytest.mark.parametrize("fn", [lambda x: x, functools.partial(pow, 2)])
def test_what_has_no_name_of_its_own_must_be_given_one(fn: Any) -> None:
    once = Once(MemoryStore())
    with pytest.raises(ConfigurationError, match="name="):
        once(fn)
    assert once(name="anything")(fn)(3) == once(name="anything")(fn)(3)


def test_a_script_has_the_same_keys_as_the_module_that_it_is(tmp_path: Path) -> None:
    script = tmp_path / "billing.py"
    script.write_text(
        "from onceward import MemoryStore, Once\n"
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


# ── methods ──


def test_what_tells_the_objects_of_a_method_apart_belongs_into_its_key() -> None:
    once = Once(MemoryStore())

    class Mailer:
        def __init__(self, account: str) -> None:
            self.account = account

        @once(key="{self.account}:{n}")
        def send(self, n: int) -> str:
            return f"{n} of {self.account}"

        @once(name="write")
        def write(self, n: int, to: str) -> None: ...

    assert (Mailer("a").send(1), Mailer("b").send(1), Mailer("a").send(1)) == ("1 of a", "1 of b", "1 of a")
    with pytest.raises(InvalidKey) as refused:
        Mailer("a").write(1, "you")
    assert "no declared content" in str(refused.value)
    assert 'key="write:{self.account}:{n}:{to}"' in str(refused.value)


def test_a_method_is_bound_and_its_receiver_is_no_payload(face: Face) -> None:
    effects: list[str] = []

    class Till:
        def take(self, order: str, amount: int = 1) -> str:
            effects.append(order)
            return f"{order} {amount}"

        once = decorated(face, take, key="take:{order}")

    till = Till()
    assert face._wait(till.once("A")) == "A 1"
    assert face._wait(Till().once("A", amount=1)) == "A 1"  # another till, the same work
    assert face._wait(Till.once(till, "A")) == "A 1"
    assert face._wait(till.once.outcome("A")).replayed
    assert till.once.key("A") == Till.once.key(till, "A")
    assert face._wait(till.once.read("A")).value == "A 1"
    assert face._wait(till.once.forget("A")) is True
    assert effects == ["A"]


def test_without_a_key_the_receiver_must_have_content(face: Face) -> None:
    def take(self: Any, order: str) -> str:
        return order

    @dataclass
    class Account:
        number: int
        once = decorated(face, take)

    class Plain:
        once = decorated(face, take)

    assert Account(1).once.key("A") == Account(1).once.key("A")
    assert Account(1).once.key("A") != Account(2).once.key("A")
    with pytest.raises(InvalidKey, match=r"key=.*dataclass"):
        Plain().once.key("A")


def test_static_methods_are_functions(face: Face) -> None:
    class Till:
        @staticmethod
        @functools.partial(decorated, face)
        def take(order: str) -> str:
            return order

    assert face._wait(Till.take("A")) == face._wait(Till().take("A")) == "A"
    assert face._wait(Till.take.outcome("A")).replayed


def test_class_methods_know_their_class(face: Face) -> None:
    class Till:
        @classmethod
        @functools.partial(decorated, face)
        def make(cls, order: str) -> str:
            return f"{cls.__name__} {order}"

    class Desk(Till):
        pass

    assert [face._wait(Till.make("A")), face._wait(Till().make("A"))] == ["Till A"] * 2
    assert face._wait(Desk.make("A")) == "Desk A"  # the class is part of the default key
    # Since Python 3.13, @classmethod gives a bound method whose attributes are those of the function: no class in them.
    of_desk = (Desk,) if sys.version_info >= (3, 13) else ()
    assert face._wait(Desk.make.outcome(*of_desk, "A")).replayed
    assert face._wait(Desk.make.forget(*of_desk, "A"))
    assert [one.value for one in face._wait(face.once.map(Desk.make, ["A", "B"]))] == ["Desk A", "Desk B"]


@pytest.mark.skipif(sys.version_info < (3, 13), reason="there, @classmethod asks the function for its bound form")
def test_a_class_method_that_was_told_no_class_runs_nothing(face: Face) -> None:
    class Till:
        @classmethod
        @functools.partial(decorated, face)
        def make(cls, order: str = "A") -> str:
            pytest.fail("nothing may run")

    for call in (Till.make.outcome, Till.make.read, Till.make.forget):
        for arguments in ((), ("B",)):
            with pytest.raises(ConfigurationError, match=r"Class\.method\.outcome\(Class"):
                face._wait(call(*arguments))


def test_a_parameter_called_cls_of_a_plain_function_is_any_parameter(face: Face) -> None:
    def book(cls: str) -> str:
        return cls

    assert face._wait(decorated(face, book)("economy")) == "economy"


@pytest.mark.parametrize("kind", [staticmethod, classmethod])
def test_once_goes_below_staticmethod_and_classmethod(kind: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"put @{kind.__name__} above"):
        Once(MemoryStore())(kind(lambda x: x))


# ── from outside it is the function ──


def test_name_docstring_and_signature_are_the_functions(face: Face) -> None:
    def charge(self: Any, order: str, amount: int = 1) -> str:
        """Take the money."""
        return order

    class Till:
        once = decorated(face, charge, key="{order}")

    for each in (Till.once, Till().once):
        assert (each.__name__, each.__doc__, each.__module__) == ("charge", "Take the money.", __name__)
        assert each.__wrapped__.__name__ == "charge"
    assert str(inspect.signature(Till.once)) == "(self: 'Any', order: 'str', amount: 'int' = 1) -> 'str'"
    assert str(inspect.signature(Till().once)) == "(order: 'str', amount: 'int' = 1) -> 'str'"
    assert "charge" in repr(Till.once)


def test_frameworks_see_which_functions_are_async() -> None:
    async def work() -> None: ...
    def plain() -> None: ...

    once = Once(MemoryStore())
    with_loop = AsyncOnce(MemoryStore())(work)
    assert asyncio.iscoroutinefunction(with_loop)
    assert asyncio.iscoroutinefunction(once(work))
    assert not asyncio.iscoroutinefunction(once(plain))
    if sys.version_info >= (3, 12):
        assert inspect.iscoroutinefunction(with_loop)


once_by_name = Once("memory://")


@once_by_name
def by_name(x: int) -> int:
    return x


class Keeper:
    @once_by_name(key="{x}")
    def keep(self, x: int) -> int:
        return x


def test_a_decorated_function_is_pickled_by_name_like_any_other() -> None:
    assert pickle.loads(pickle.dumps(by_name)) is by_name
    assert pickle.loads(pickle.dumps(Keeper().keep))(4) == 4


# ── what cannot work is said while decorating ──


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"key": "mail:{prospect}"}, r"names 'prospect', which is no parameter.*order, amount"),
        ({"key": ["a:{order}", "b:{nothing}"]}, "'nothing'"),
        ({"key": "mail:{order!r}"}, "a key is made of values"),
        ({"key": "mail:{order"}, "cannot be read"),
        ({"key": "mail:{}"}, "names no parameter"),
        ({"key": 7}, "key= is int"),
        ({"key": lambda customer: customer}, "does not fit"),
        ({"key": ""}, "template of a key is empty"),
        ({"tenant": "{org}"}, "'org'"),
        ({"tenant": ["{order}", "{amount}"]}, "tenant= takes a template or a callable"),
        ({"fingerprint": ["amout"]}, r"fingerprint names 'amout'.*order, amount"),
        ({"on_runing": "skip"}, "there is no setting 'on_runing'"),
        ({"kye": "a"}, "there is no setting 'kye' → did you mean 'key'"),
        ({"tennant": "a"}, "did you mean 'tenant'"),
        ({"lease": "1ms"}, "a lease of 1ms cannot work"),
    ],
)
def test_choices_that_cannot_work_are_refused_while_decorating(face: Face, settings: Any, says: str) -> None:
    def charge(order: str, amount: int = 1) -> str:
        return order

    with pytest.raises(ConfigurationError, match=says):
        face(**settings)(charge)


@pytest.mark.rival(6)
def test_functions_that_yield_are_refused_because_they_work_later() -> None:
    def later() -> Any:
        yield 1

    async def later_still() -> Any:
        yield 1

    once = Once(MemoryStore())
    for fn in (later, later_still):
        with pytest.raises(ConfigurationError, match="yields"):
            once(fn)
    with pytest.raises(ConfigurationError):
        AsyncOnce(MemoryStore())(later_still)


@pytest.mark.rival(6)
def test_each_colour_refuses_the_others_functions() -> None:
    async def work() -> int:
        return 1

    def plain() -> int:
        return 1

    once = Once(MemoryStore())
    with pytest.raises(ConfigurationError, match="AsyncOnce"):
        _ = once.run("k", work)
    with pytest.raises(ConfigurationError, match="AsyncOnce"):
        _ = once.run("k", functools.partial(work))
    with pytest.raises(ConfigurationError, match="or use Once"):
        AsyncOnce(MemoryStore())(plain)  # type: ignore[arg-type]  # that is the point


def test_what_the_async_face_has_run_the_blocking_one_still_refuses() -> None:
    """Before anything is claimed: what a blocking call cannot await must not use up an attempt, or park a key."""

    async def work() -> int:
        return 1

    once = Once(MemoryStore(), after_crash="park")
    assert asyncio.run(once.aio.run("a", work)) == 1
    with pytest.raises(ConfigurationError, match="cannot await"):
        once.run("b", work)  # type: ignore[unused-coroutine]  # that is the point
    assert once.read("b") is None
    once.close()


@pytest.mark.rival(6)
def test_a_coroutine_is_never_taken_for_the_result() -> None:
    async def work() -> int:
        return 1

    def hidden() -> Any:
        return work()

    once = Once(MemoryStore())
    outcome = once.outcome("k", hidden)
    assert outcome.kind == "failed"
    with pytest.raises(ConfigurationError, match="AsyncOnce"):
        outcome.unwrap()


async def test_async_once_takes_a_plain_function_that_gives_a_value() -> None:
    """Failing after its effect would run it twice."""
    effects: list[int] = []

    def plain() -> Any:
        effects.append(1)
        return 5

    once = AsyncOnce(MemoryStore())
    assert [await once.run("k", plain), await once.run("k", plain)] == [5, 5]
    assert effects == [1]
    await once.close()


def test_a_name_and_its_version_are_no_other_name(face: Face) -> None:
    def charge(x: int) -> int:
        return x

    def operation(**settings: Any) -> str:
        scope: str = face(**settings)(charge).key(1).scope.operation
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

    assert outputs("shared") == ["a", "a"]  # as documented: the file's name alone does not tell them apart
    assert outputs("") == ["a", "b"]


def test_a_function_that_has_grown_an_argument_never_replays_what_it_did_without_it() -> None:
    """The key said all then; it no longer does, and nobody knows what the new argument was."""
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
