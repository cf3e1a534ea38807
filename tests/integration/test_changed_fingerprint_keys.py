"""A deployment that changes the fingerprint_key: the log says what happens to existing keys."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onceward import Once, PayloadMismatch
from onceward.client import compare_declarations
from onceward.keys.key import Scope, make_key
from onceward.protocol.operation_names import DECLARATION
from onceward.runtime.threads import run
from tests.integration.deployments import by_number, warnings


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/once.db"


FIRST_SECRET, SECOND_SECRET = b"first secret key of 26 byt", b"second secret key of 27 byt"


def deployed_with_secret(store: Any, secret: bytes | None, **settings: Any) -> None:
    """Run one process that declares the operation in a client with this fingerprint_key."""
    with Once(store, app="shop", fingerprint_key=secret) as once:
        once(name="charge", **{"key": "charge:{n}"} | settings)(by_number).outcome(n=1)


def stored_declaration(url: str) -> bytes:
    with Once(url) as once:
        once.read("any")
        id = make_key(Scope("shop", DECLARATION), "shop/charge").id
        states = once.store.latest
        assert states is not None
        [state] = run(states.read_latest([id], timeout=5))
        assert state is not None
        assert state.value is not None
        return state.value


@pytest.mark.finding("N28")
@pytest.mark.parametrize(
    ("secrets", "said"),
    [
        ((FIRST_SECRET, SECOND_SECRET), "fingerprint_key=<secret> and is now declared with fingerprint_key=<another"),
        ((None, FIRST_SECRET), "fingerprint_key=none and is now declared with fingerprint_key=<secret>: until their"),
        ((FIRST_SECRET, None), "fingerprint_key=<secret> and is now declared with fingerprint_key=none: until their"),
    ],
)
@pytest.mark.parametrize("template", ["charge:{n}", None])  # None: a consumer would use the message id
def test_a_changed_fingerprint_key_is_logged_once(
    url: str, secrets: tuple[bytes | None, bytes | None], said: str, template: str, caplog: pytest.LogCaptureFixture
) -> None:
    before, after = secrets
    for _ in range(2):
        deployed_with_secret(url, before, key=template)
    assert warnings(caplog) == []
    deployed_with_secret(url, after, key=template)
    [line] = warnings(caplog)
    assert said in line
    assert "refused as mismatches, even if their payload is the same" in line
    deployed_with_secret(url, after, key=template)
    assert len(warnings(caplog)) == 1, "the next process finds the new declaration"


@pytest.mark.finding("N28")
def test_a_changed_fingerprint_key_of_a_table_is_logged(url: str, caplog: pytest.LogCaptureFixture) -> None:
    for key in (FIRST_SECRET, SECOND_SECRET):
        with Once(url, app="shop", operations={"charge": {"key": "charge:{n}"}}, fingerprint_key=key) as once:
            once.operation("charge")(by_number).outcome(1)
    [line] = warnings(caplog)
    assert "fingerprint_key=<another secret>" in line


@pytest.mark.parametrize("settings", [{"fingerprint": "none"}, {"key": "charge:{n}:{note}"}])
def test_a_fingerprint_key_without_fingerprints_may_change(
    url: str, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    for key in (FIRST_SECRET, SECOND_SECRET):
        with Once(url, app="shop", fingerprint_key=key) as once:
            once(name="charge", **{"key": "charge:{n}", **settings})(by_number)(1, "a")
    assert warnings(caplog) == []


@pytest.mark.finding("N28")
def test_a_stored_declaration_does_not_reveal_the_fingerprint_key(url: str, caplog: pytest.LogCaptureFixture) -> None:
    deployed_with_secret(url, FIRST_SECRET)
    stored = msgspec.json.decode(stored_declaration(url))
    shown = stored["fingerprint_key"]
    assert len(shown) == 4, "so short that many keys have the same value"
    assert shown not in (FIRST_SECRET.hex()[:4], hashlib.sha256(FIRST_SECRET).hexdigest()[:4])
    deployed_with_secret(url, SECOND_SECRET)
    [line] = warnings(caplog)
    assert shown not in line
    assert msgspec.json.decode(stored_declaration(url))["fingerprint_key"] not in (shown, "none", "")


@pytest.mark.finding("N28")
def test_a_declaration_of_an_earlier_version_has_no_fingerprint_key(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(compare_declarations, "fingerprint_key_id", lambda _: "")
        earlier.setattr(compare_declarations, "NO_KEY", "")
        deployed_with_secret(url, FIRST_SECRET)
    deployed_with_secret(url, SECOND_SECRET)
    assert warnings(caplog) == []
    deployed_with_secret(url, FIRST_SECRET)
    assert len(warnings(caplog)) == 1


@pytest.mark.finding("N28")
def test_a_mismatch_says_that_the_fingerprint_key_may_have_changed(url: str, caplog: pytest.LogCaptureFixture) -> None:
    deployed_with_secret(url, FIRST_SECRET)
    with Once(url, app="shop", fingerprint_key=SECOND_SECRET) as once:
        charge = once(name="charge", key="charge:{n}")(by_number)
        with pytest.raises(PayloadMismatch, match="fingerprint_key has changed"):
            charge(n=1)
    assert any("another payload" in one and "fingerprint_key has changed" in one for one in caplog.messages)
