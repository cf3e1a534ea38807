"""The source uses only public attributes of asyncio and of the drivers: private ones change without notice.

Tests use the public API and the store port, so that a change inside a class breaks no test.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import onceward

SOURCE = Path(onceward.__file__).parent
ALLOWED = {
    "_is_coroutine": "before Python 3.12, asyncio has no public way to mark a callable as a coroutine function",
    "_current_frames": "documented in `sys`, in spite of its name",
    "_getframe": "documented in `sys`, in spite of its name",
    "_exit": "documented in `os`",
    "_PARTITION_EOF": "the public name of an error code of confluent-kafka",
    "_asdict": "documented for named tuples",
    "_replace": "documented for named tuples",
    "_fields": "documented for named tuples",
    "_field_defaults": "documented for named tuples",
    "_value_": "documented for enums",
    "_TestState": "Django has no other sign that its test environment is set up",
    "_from_testcase": "Django has no other sign for the transaction around a `TestCase`",
    "_name_": "documented for enums",
}
FIRESTORE = SOURCE / "stores" / "firestore"  # its client has no public access to a transaction's writes and settings

TESTS = Path(__file__).parent.parent
LIMIT_IN_TESTS = 92
"""Uses in all tests: broken variants of our own classes, races inside a call, damaged records. May only get smaller.

What the tests of a store need of its inside is in `raw_memory.py`, `raw_sqlite.py` and `raw_postgres.py`.
"""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in ALLOWED


def is_own_object(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def called_name(call: ast.Call) -> str:
    """Return the last part of the function's name, or nothing if the function has no name."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def private_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the private attributes that are read from, or set on, anything but `self` and `cls`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            if not is_own_object(node.value):
                yield node.lineno, node.attr
        elif isinstance(node, ast.Call) and called_name(node).endswith("attr"):  # also `monkeypatch.setattr`
            name = node.args[1] if len(node.args) > 1 else None
            if isinstance(name, ast.Constant) and isinstance(name.value, str) and is_private(name.value):
                yield node.lineno, name.value


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def own_names() -> set[str]:
    """Return the private names that our own classes and modules define."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and isinstance(node.value, ast.Name)
                and node.value.id == "self"
            ):
                found.add(node.attr)
    return found


def violations(tree: ast.Module, own: set[str]) -> list[tuple[int, str]]:
    return [(line, name) for line, name in private_names(tree) if name not in own]


def test_no_private_attribute_of_another_package_is_used() -> None:
    own = own_names()
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {name}"
        for path in SOURCE.rglob("*.py")
        if FIRESTORE not in path.parents
        for line, name in violations(parsed(path), own)
    ]
    assert not found


def test_the_check_finds_what_was_there_before() -> None:
    own = own_names()
    for source in (
        "loop._thread_id == get_ident()",
        "future._callbacks[0]",
        "connection._sock.recv(1)",
        "connection._writer.transport",
        "future._asyncio_future_blocking = False",
        "getattr(transport, '_ssl_protocol')",
    ):
        assert violations(ast.parse(source), own), source


def test_the_tests_use_no_more_private_attributes_than_before() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}: {name}"
        for path in sorted(TESTS.rglob("*.py"))
        for line, name in private_names(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert len(found) <= LIMIT_IN_TESTS, "use the public API or the store port instead:\n" + "\n".join(found)


def test_the_check_of_tests_finds_every_way_to_reach_a_private_attribute() -> None:
    for source in (
        "store._records",
        "client.heartbeat._holds.clear()",
        "monkeypatch.setattr(store, '_records', {})",
        "getattr(store, '_records')",
        "once.heartbeat._start = print",
    ):
        assert list(private_names(ast.parse(source))), source
    for source in ("self._records", "super()._records", "cls._records", "record._replace(token=1)", "os._exit(0)"):
        assert not list(private_names(ast.parse(source))), source
