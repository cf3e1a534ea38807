"""A few hundred random inputs for each parser, with a fixed seed, and inputs that once broke one. More: `make fuzz`."""

from __future__ import annotations

import zlib
from base64 import urlsafe_b64encode
from collections import deque

import pytest

from onceward.stores.firestore.layout import REST
from onceward.stores.firestore.values import Value, number
from tests.fuzz.console_targets import CURSOR, FAILED, cursor, status_of
from tests.fuzz.fuzz import Broken, fuzz, try_input
from tests.fuzz.store_targets import document, stored_latest
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

INPUTS = 150

DEEP = b"[" * 100_000

ONCE_BROKE = (
    ("stored_response", b"201\r\na: b\r\nc:(d\r"),
    ("journal", b'{"cycle":1,"lines":[{"name":\xc1"a"}]}'),
    ("counters", b'{"\xf3hop/charge":{"exebuted":1}}'),
    ("ndjson", b'{"n":1e99999999999999999999}'),
    ("csv", "\ufeffemail\na\ud800\n".encode("utf-16-le", "surrogatepass")),
    ("cloudevent", b"ce-id: %FF\nce-source: /s\nce-type: t\nce-specversion: 1.0\n\n{}"),
    ("reject_cell", b"a;=1+1"),
    ("store_url", b"postgresql://db/shop?connections=" + b"9" * 5_000),
    ("store_url", b"memory://?max_records=" + b"9" * 5_000),
    ("scope", rb"a\n/b"),
    ("password", b"Ym1ig=//:\xdd"),
    ("preview", urlsafe_b64encode(zlib.compress(b"\x92" + b"\x82\xa1a" * 5_000))),
    ("list_cursor", urlsafe_b64encode(DEEP)),
    ("key_set", DEEP),
    ("settings_file", b"a=" + DEEP),
    ("redis_record", b""),
    ("redis_event", b"7 failed\n"),
    ("redis_audit", b""),
    ("redis_state", b""),
    ("redis_mark", b"\x01"),
    (
        "firestore_record",
        document({(REST, "arguments"): Value(bytes_value=b'{"a":"\xf5"}'), (REST, "token"): number(7)}),
    ),
    ("firestore_history", b"\x91\x91\x01"),
    ("firestore_mark", stored_latest().replace(b"created_at\x12\x05R", b"created_at\x12\x05B")),
    ("declaration", b'{"key":"\xf5"}'),
    ("console_page", b"keys?prefix=\xf5&after=!"),
    ("console_page", b"keys?after=" + cursor(2**63, 1).encode()),
)


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_breaks_a_parser(name: str) -> None:
    deque(fuzz(name, seed=1, count=INPUTS), maxlen=0)


@pytest.mark.parametrize(("name", "data"), ONCE_BROKE)
def test_inputs_that_once_broke_a_parser_do_so_no_longer(name: str, data: bytes) -> None:
    try_input(name, data, "an earlier input")


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_accepts_its_valid_inputs(name: str) -> None:
    for data in TARGETS[name].seeds:
        try_input(name, data, "a valid input")


@pytest.mark.parametrize("target", [f"keys/{FAILED}", "find?q=charge%3A3", f"parked?after={CURSOR}"])
def test_the_console_that_is_fuzzed_has_records(target: str) -> None:
    assert status_of("GET", target.encode()) in (200, 303)


def test_an_undeclared_error_is_found_and_the_message_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fragile(data: bytes) -> None:
        if b"\x00" in data:
            raise IndexError

    monkeypatch.setitem(TARGETS, "fragile", Target(fragile, (), (b"valid",)))
    with pytest.raises(Broken, match="fragile, seed 5, input"):
        deque(fuzz("fragile", seed=5, count=10_000), maxlen=0)
