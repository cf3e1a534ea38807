"""The table of operations: what it may say, and what is refused or warned about at start-up."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest

from onceward import (
    AsyncOnce,
    ConfigurationError,
    Failed,
    Once,
    OncewardWarning,
    Payload,
    calendar,
    forever,
    lasting,
    sliding,
)
from onceward.operations import AsyncFunction, Operations
from onceward.operations.table import FIELDS, OperationFields
from onceward.protocol.policy import Settings
from onceward.protocol.record import AfterCrash
from onceward.stores import MemoryStore

pytestmark = pytest.mark.mission("C9")

SEEDS = """
[operations.email]
key = "email:{prospect_id}"
window = "24h"
lease = "300s"
fingerprint = "none"
on_running = "raise"
reasons = { done = "already_emailed_today", running = "send_in_progress" }

[operations.cron]
key = "cron:{pattern}:{timestamp}"
window = "1h"
lease = "600s"

[operations.reply]
key = "reply:{message_id}"
window = "forever"

[operations.enrich]
key = "enrich:{prospect_id}:{type}"
window = "24h"
window_from = "attempt"

[operations.import]
key = ["import:{email}", "import:{name}:{city}"]
window = "forever"
"""


def file_of(folder: Path, text: str, name: str = "onceward.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def one(**fields: Any) -> Any:
    """Return the only declaration of a table."""
    table: Any = {"email": fields}
    return Operations(table)["email"]


# ── what it may say ──


def test_the_windows_of_the_seed_documents_are_declared_in_one_table(tmp_path: Path) -> None:
    operations = Operations.load(file_of(tmp_path, SEEDS))
    declared = {each.name: (each.written["key"], str(each.policy().window)) for each in operations}
    assert declared == {
        "email": ("email:{prospect_id}", "lasting 1d"),
        "cron": ("cron:{pattern}:{timestamp}", "lasting 1h"),
        "reply": ("reply:{message_id}", "forever"),
        "enrich": ("enrich:{prospect_id}:{type}", "lasting 1d since the attempt"),
        "import": (["import:{email}", "import:{name}:{city}"], "forever"),
    }
    assert len(operations) == 5
    assert "reply" in operations
    assert operations["email"].policy().reasons.customised() == {
        "done": "already_emailed_today",
        "running": "send_in_progress",
    }


def test_a_pyproject_has_them_below_tool_onceward(tmp_path: Path) -> None:
    text = SEEDS.replace("[operations.", "[tool.onceward.operations.")
    path = file_of(tmp_path, '[project]\nname = "shop"\n' + text, "pyproject.toml")
    assert [each.name for each in Operations.load(path)] == ["email", "cron", "reply", "enrich", "import"]


def test_code_says_the_same_as_a_file(tmp_path: Path) -> None:
    filed = Operations.load(file_of(tmp_path, SEEDS))["enrich"]
    coded = Operations(enrich={"key": "enrich:{prospect_id}:{type}", "window": "24h", "window_from": "attempt"})
    assert coded["enrich"].settings == filed.settings
    assert coded["enrich"].parts == filed.parts


@pytest.mark.parametrize(
    ("written", "window"),
    [
        ("24h", lasting("24h")),
        (3600, lasting("1h")),
        ("forever", forever),
        ({"sliding": "1h"}, sliding("1h")),
        ({"calendar": "Europe/Berlin"}, calendar("Europe/Berlin")),
        ({"lasting": "2h"}, lasting("2h")),
        (sliding("5m"), sliding("5m")),
    ],
)
def test_every_kind_of_window_can_be_written(written: Any, window: Any) -> None:
    assert one(window=written).policy().window == window


def test_a_hyphen_in_a_file_is_as_good_as_an_underscore(tmp_path: Path) -> None:
    text = '[operations.enrich]\nwindow = "24h"\nwindow-from = "attempt"\nafter-crash = "park"\n'
    policy = Operations.load(file_of(tmp_path, text))["enrich"].policy()
    assert (policy.window, policy.after_crash) == (lasting("24h", since="attempt"), AfterCrash.PARK)


def test_every_setting_of_a_function_may_stand_in_the_table() -> None:
    assert set(Settings.__optional_keys__) <= set(FIELDS)
    assert set(OperationFields.__optional_keys__) == set(FIELDS)


def test_what_a_client_declares_holds_where_the_table_is_silent() -> None:
    once = Once(MemoryStore(), operations={"email": {"window": "1h"}}, lease="5m", window="7d")

    @once.operation("email")
    def send(prospect_id: int) -> None: ...

    assert (send.policy.lease, send.policy.window) == (300_000_000, lasting("1h"))
    once.close()


def test_tenant_and_version_of_the_table_are_part_of_the_key() -> None:
    once = Once(MemoryStore(), app="shop", operations={"email": {"version": 2, "tenant": "{org}", "key": "{to}"}})

    @once.operation("email")
    def send(to: str, org: str) -> None: ...

    assert send.key("ann", "acme").scope.text == "shop/email#2@acme"
    once.close()


def test_several_functions_may_share_an_operation() -> None:
    """At most one mail a day, whichever it is: that is what a table is for, so it is not warned about."""
    once = Once(MemoryStore(), operations={"email": {"key": "email:{prospect}", "fingerprint": "none"}})

    @once.operation("email")
    def welcome(prospect: int) -> str:
        return "welcome"

    @once.operation("email")
    def remind(prospect: int, text: str) -> str:
        return "remind"

    assert welcome(1) == remind(1, "hello") == "welcome"
    once.close()


def test_types_of_python_may_be_added_where_the_table_leaves_them_open() -> None:
    once = Once(MemoryStore(), operations={"charge": {"key": "charge:{order}", "window": "24h"}})

    @once.operation("charge", final=ValueError, on_running="skip")
    def charge(order: int) -> str:
        raise ValueError(order)

    with pytest.raises(ValueError, match="7"):
        charge(7)
    again = charge.outcome(7)
    assert isinstance(again, Failed)
    assert again.final
    once.close()


def test_a_window_from_the_attempt_makes_failures_final_unless_another_setting_decides() -> None:
    from_attempt: Any = {"window": "24h", "window_from": "attempt"}
    assert one(**from_attempt).policy().final == (Exception, TimeoutError)
    assert one(**from_attempt, final=ValueError).policy().final == (ValueError,)
    assert one(**from_attempt, retry=ConnectionError).policy().final == ()
    assert one(**from_attempt, after_crash="park").policy().final == ()
    assert one(window="24h", window_from="completion").policy().final == ()


def test_what_the_table_says_is_not_said_again_at_the_function() -> None:
    once = Once(MemoryStore(), operations={"charge": {"window": "24h"}})
    with pytest.raises(ConfigurationError, match="charge already declares window in its table"):
        once.operation("charge", window="1h")
    with pytest.raises(ConfigurationError, match=r"no setting 'leese'.*did you mean 'lease'"):
        once.operation("charge", leese="1h")(lambda order: order)  # type: ignore[call-overload]  # that is the point
    once.close()


def test_a_key_source_of_code_works_in_a_table_of_code() -> None:
    once = Once(MemoryStore(), operations={"submit": {"key": Payload(exclude=["sent_at"])}})

    @once.operation("submit")
    def submit(form: str, sent_at: int) -> str:
        return form

    assert submit.outcome("a", 1).executed
    assert submit.outcome("a", 2).replayed
    once.close()


def test_a_client_with_operations_is_pickled_with_them(tmp_path: Path) -> None:
    once = Once(f"sqlite:///{tmp_path}/a.db", operations=file_of(tmp_path, SEEDS))
    other = pickle.loads(pickle.dumps(once))
    assert [each.name for each in other.operations] == [each.name for each in once.operations]
    assert [each.settings for each in other.operations] == [each.settings for each in once.operations]


def test_sync_and_async_clients_decorate_by_name() -> None:
    once = Once(MemoryStore(), operations={"email": {"key": "{to}"}})

    @once.operation("email")
    async def send(to: str) -> None: ...

    assert isinstance(send, AsyncFunction)
    assert send.key("ann").scope.text == "default/email"
    with pytest.raises(ConfigurationError, match="decorates async functions"):
        AsyncOnce(MemoryStore(), operations={"email": {}}).operation("email")(len)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(ConfigurationError, match="above @once"):
        once.operation("email")(staticmethod(len))
    once.close()


# ── what is refused ──


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"windw": "24h"}, r"email: there is no field 'windw' → did you mean 'window'\?"),
        ({"Key": "a"}, r"email: there is no field 'Key' → did you mean 'key'\?"),
        ({"xyzzy": 1}, r"email: there is no field 'xyzzy' → fields are: after_crash, "),
        ({"window": "soon"}, "email: window is not a duration: 'soon'|email: .*not a duration: 'soon'"),
        ({"window": {"slidng": "1h"}}, r"email: window cannot be \{'slidng': '1h'\}"),
        ({"window": {"sliding": "1h", "calendar": "UTC"}}, "email: window cannot be"),
        ({"window": {"calendar": "Mars/Olympus"}}, "email: unknown time zone 'Mars/Olympus'"),
        ({"window_from": "attempt"}, "email: window_from='attempt' needs a duration, but the window is not given"),
        ({"window": "forever", "window_from": "attempt"}, "needs a duration, but the window is forever"),
        ({"window": {"calendar": "UTC"}, "window_from": "completion"}, "the window is calendar day in UTC"),
        ({"window": "24h", "window_from": "start"}, "email: window_from cannot be 'start'"),
        ({"lease": "0s"}, "email: a lease of 0ms cannot work"),
        ({"on_running": "skip"}, r"email: skip makes calls return None.*@once.operation\(…, on_running="),
        ({"on_done": "skip"}, "email: skip makes calls return None"),
        ({"on_running": "queue"}, "email: on_running cannot be 'queue'"),
        ({"after_crash": "verify"}, "email: after_crash cannot be 'verify'"),
        ({"key": "email:{prospect"}, "email: the key template .* is invalid"),
        ({"key": ""}, "email: the template of a key is empty"),
        ({"key": []}, "email: a list of key templates is empty"),
        ({"fingerprint": 5}, "email: fingerprint cannot be 5"),
        ({"reasons": {"dne": "x"}}, r"email: there is no reason 'dne' → did you mean 'done'\?"),
        ({"reasons": {"done": ""}}, "email: the reason 'done' must be a word, not ''"),
        ({"reasons": {"done": 5}}, "email: the reason 'done' must be a word"),
        ({"reasons": "done"}, "email: reasons cannot be 'done'"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_when_the_table_is_made(fields: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        one(**fields)


def test_a_name_with_the_mark_of_versions_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="contains '#'"):
        Operations({"email#2": {}})


def test_an_error_in_a_file_names_file_operation_and_field(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^onceward.toml: email: there is no field 'windw'"):
        Operations.load(file_of(tmp_path, '[operations.email]\nwindw = "24h"\n'))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[operations.charge]\nfinal = 'ValueError'\n", "final takes exception types, which a file cannot name"),
        ("operations = 3\n", "operations is not a table of operations"),
        ("[operations]\nemail = '24h'\n", "operations is not a table of operations"),
        ("app = 'shop'\n", "onceward.toml declares no operations"),
        ("[operations", "onceward.toml cannot be read"),
    ],
)
def test_a_file_that_declares_nothing_of_use_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Once(MemoryStore(), operations=file_of(tmp_path, text))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"onceward.toml cannot be read: .*No such file"):
        Once(MemoryStore(), operations=tmp_path / "onceward.toml")
    with pytest.raises(ConfigurationError, match="is not a table of operations"):
        Once(MemoryStore(), operations=5)  # type: ignore[arg-type]  # that is the point


def test_an_unknown_name_lists_the_known_ones_and_the_nearest() -> None:
    once = Once(MemoryStore(), operations={"email": {}, "enrich": {}})
    with pytest.raises(ConfigurationError, match=r"'emial' → did you mean 'email'\? declared are: email, enrich"):
        once.operation("emial")
    once.close()
    with Once(MemoryStore()) as bare, pytest.raises(ConfigurationError, match="none is declared: Once"):
        bare.operation("email")


def test_a_template_that_the_function_cannot_fill_is_refused_where_it_is_decorated() -> None:
    once = Once(MemoryStore(), operations={"email": {"key": "email:{prospect_id}"}})
    with pytest.raises(ConfigurationError, match=r"email: the key template .* names 'prospect_id'"):

        @once.operation("email")
        def send(prospect: int) -> None: ...

    once.close()


# ── what is warned about ──


@pytest.mark.fault("F47")
def test_a_window_shorter_than_the_retry_span_of_the_sender_is_warned_about_once_by_its_name() -> None:
    table: Any = {"email": {"key": "{to}", "window": "24h", "retry_span": "3d"}, "reply": {"window": "forever"}}
    with pytest.warns(
        OncewardWarning, match=r"^email: the window \(lasting 1d\) is shorter than the sender's"
    ) as warned:
        once = Once(MemoryStore(), operations=table)
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @once.operation("email")
        def send(to: str) -> None: ...

    assert send.policy.retry_span == 3 * 86_400_000_000
    once.close()


@pytest.mark.fault("F47")
def test_the_window_that_a_client_sets_counts_as_well() -> None:
    table: Any = {"email": {"retry_span": "3d"}}
    Once(MemoryStore(), operations=table, window="7d").close()
    with pytest.warns(OncewardWarning, match="^email: the window"):
        Once(MemoryStore(), operations=table, window="2d").close()


@pytest.mark.fault("F47")
def test_a_window_added_at_the_function_is_compared_too() -> None:
    once = Once(MemoryStore(), operations={"email": {"retry_span": "12h"}})
    with pytest.warns(OncewardWarning, match="shorter than the sender's retry span"):

        @once.operation("email", window="1h")
        def send(to: str) -> None: ...

    once.close()


# ── the store that the same file names ──


def test_the_store_of_the_file_is_used_unless_a_closer_setting_names_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONCEWARD_STORE_URL", raising=False)
    (tmp_path / "onceward.toml").write_text('store = "sqlite:///mine.db"\n[operations.email]\nwindow = "24h"\n')

    def file(once: Once) -> str:
        return once.store.name.rpartition("/")[2]

    assert file(Once(operations="onceward.toml")) == "mine.db"
    assert file(Once(operations=tmp_path / "onceward.toml")) == "mine.db"
    assert file(Once("memory://", operations="onceward.toml")) == "memory"
    assert file(Once()) == "onceward.db", "a file that no setting names is not read"
    assert file(pickle.loads(pickle.dumps(Once(operations="onceward.toml")))) == "mine.db"
    monkeypatch.setenv("ONCEWARD_STORE_URL", "memory://")
    assert file(Once(operations="onceward.toml")) == "memory"


def test_a_store_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "onceward.toml").write_text('store = 5\n[operations.email]\nwindow = "24h"\n')
    with pytest.raises(ConfigurationError, match="store is int"):
        Once(operations=tmp_path / "onceward.toml")
