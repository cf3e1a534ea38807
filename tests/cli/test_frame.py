"""What all commands share: settings, output, and one clear line for any problem with the store."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from onceward import Once
from onceward.administration import bulk
from onceward.cli.display import MAX_LINE_WIDTH, cut, width_of
from onceward.cli.exit_codes import Exit, exit_code_for
from onceward.cli.program import program
from onceward.cli.settings import DEFAULTS, SETTINGS, VARIABLES
from onceward.errors import OncewardError
from onceward.protocol.secrets import text_without_secrets, url_without_secrets
from onceward.stores.sqlite import connection as link
from onceward.stores.sqlite import schema
from tests.cli.calls import call, environment, line, on_a_terminal

READING = (("ls",), ("show", "k"), ("explain", "k"), ("stats",), ("audit",), ("doctor",))
ACTING = (("release", "k"), ("retry", "k"), ("resolve", "k", "--applied"), ("forget", "k"), ("purge",))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.fixture
def filled(folder: Path) -> Path:
    with Once("sqlite:///onceward.db") as once:
        once.run("k", str)
    return folder


def test_without_click_it_says_how_to_install_it(folder: Path) -> None:
    code = "import sys; sys.modules['click'] = None; from onceward.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == 'onceward: the command needs click, which is not installed → pip install "onceward[cli]"\n'


def sources() -> dict[str, tuple[str, str]]:
    return {name: (one["value"], one["source"]) for name, one in json.loads(call("config").stdout).items()}


def test_flag_beats_environment_beats_file_beats_default(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sources()["store"] == ("sqlite:///onceward.db", "default")
    (folder / "pyproject.toml").write_text('[tool.onceward]\nstore = "sqlite:///project.db"\nafter-crash = "park"\n')
    assert sources()["store"] == ("sqlite:///project.db", "pyproject.toml")
    assert sources()["after_crash"] == ("park", "pyproject.toml")
    (folder / "onceward.toml").write_text('store = "sqlite:///own.db"\n')
    assert sources()["store"] == ("sqlite:///own.db", "onceward.toml")
    monkeypatch.setenv("ONCEWARD_STORE_URL", "sqlite:///env.db")
    assert sources()["store"] == ("sqlite:///env.db", "$ONCEWARD_STORE_URL")
    for words in (("config", "--store", "sqlite:///flag.db"), ("--store", "sqlite:///flag.db", "config")):
        assert json.loads(call(*words).stdout)["store"] == {"value": "sqlite:///flag.db", "source": "--store"}


def test_a_scope_in_the_environment_narrows_what_is_looked_at(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(json.loads(call("ls").stdout)) == 1
    monkeypatch.setenv("ONCEWARD_SCOPE", "elsewhere/shared")
    assert json.loads(call("ls").stdout) == []
    assert "in scope elsewhere/shared" in line(call("show", "k"))
    assert len(json.loads(call("ls", "--scope", "default/shared").stdout)) == 1


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('shop = "x"', "there is no setting 'shop'"),
        ("lease = 5", "lease must be text, not 5"),
        ('output = "xml"', "output cannot be 'xml'"),
        ("= nonsense", "onceward.toml cannot be read"),
        ('app = ""', "app is empty"),
    ],
)
def test_a_file_with_a_mistake_is_refused_by_name(folder: Path, content: str, complaint: str) -> None:
    (folder / "onceward.toml").write_text(content)
    result = call("config")
    assert result.exit_code == 2
    assert complaint in line(result)


def test_a_file_may_begin_with_a_byte_order_mark(folder: Path) -> None:
    (folder / "onceward.toml").write_text('app = "shop"', encoding="utf-8-sig")
    assert json.loads(call("config", "-o", "json").stdout)["app"]["value"] == "shop"


def test_every_setting_says_what_it_is_for() -> None:
    shown = call("config", "-o", "table").stdout
    assert all(purpose and purpose in shown for _, purpose in SETTINGS.values())


@pytest.mark.parametrize(
    "url",
    [
        "postgres://me:hunter2@db/shop",
        "postgres://me:hunter2/with@slash@db/shop",
        "redis://:hunter2@cache:6379/0",
        "redis://cache/0?password=hunter2&db=1",
        "redis://cache/0?auth_token=hunter2",
        "sqlite://me:hunter2@host/x.db",  # whose error quotes it
    ],
)
def test_passwords_are_shown_nowhere(url: str) -> None:
    assert "hunter2" not in url_without_secrets(url) + text_without_secrets(url)
    assert "***" in url_without_secrets(url)
    shown = call("config", "--store", url)
    refused = call("ls", "--store", url)
    assert refused.exit_code in (2, 69)  # no such driver here, or no such server
    assert "hunter2" not in shown.output + refused.output
    assert "***" in shown.stdout


@pytest.mark.parametrize("url", ["sqlite:///a:b@c.db", "sqlite:////x/y.db?synchronous=NORMAL"])
def test_a_url_without_a_password_stays_as_it_is(url: str) -> None:
    assert url_without_secrets(url) == url


@pytest.mark.parametrize("words", READING + ACTING, ids=lambda words: words[0])
def test_a_missing_store_is_one_line_and_no_file_is_made(folder: Path, words: tuple[str, ...]) -> None:
    result = call(*words)
    assert result.exit_code == Exit.BROKEN
    assert "does not exist" in line(result)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("words", READING + ACTING, ids=lambda words: words[0])
def test_another_programs_database_is_left_as_it_was(folder: Path, words: tuple[str, ...]) -> None:
    other = sqlite3.connect("onceward.db")
    other.execute("CREATE TABLE theirs (x)")
    other.commit()
    other.close()
    before = (folder / "onceward.db").read_bytes()
    result = call(*words)
    assert result.exit_code == Exit.BROKEN
    assert "is not an Onceward database" in line(result)
    assert (folder / "onceward.db").read_bytes() == before


@pytest.mark.parametrize("words", [*READING, *ACTING, ("run", "--key", "k", "--", "touch", "ran")], ids=lambda w: w[0])
def test_a_file_that_is_no_database_is_one_line(folder: Path, words: tuple[str, ...]) -> None:
    (folder / "onceward.db").write_bytes(b"certainly not a database " * 100)
    result = call(*words)
    assert result.exit_code == Exit.BROKEN
    assert "not a SQLite database" in line(result)
    assert not (folder / "ran").exists()


DAMAGED = [*READING, ("forget", "k", "--yes"), ("purge", "--yes"), ("run", "--key", "k", "--", "touch", "ran")]


@pytest.mark.fault("F60")
@pytest.mark.parametrize("words", DAMAGED, ids=lambda words: words[0])
def test_a_damaged_database_is_one_line(filled: Path, words: tuple[str, ...]) -> None:
    file = filled / "onceward.db"
    size = file.stat().st_size
    with file.open("r+b") as content:
        content.seek(4096)
        content.write(b"\xff" * (size - 4096))
    result = call(*words)
    assert (result.exit_code, result.stdout) == (Exit.BROKEN, "")
    assert "damaged" in line(result)
    assert not (filled / "ran").exists()


@pytest.fixture
def locked(filled: Path) -> Iterator[Path]:
    other = sqlite3.connect("onceward.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    yield filled
    other.close()


def test_a_locked_store_can_be_read_but_a_command_is_not_run(locked: Path) -> None:
    for words in READING:
        assert call(*words).exit_code == 0
    result = call("run", "--key", "new", "--lease", "300ms", "--", "touch", "ran")
    assert result.exit_code == Exit.DOWN
    assert "another writer holds the file" in line(result)
    assert not (locked / "ran").exists()


@pytest.mark.fault("F60")
@pytest.mark.parametrize("words", [("forget", "k", "--yes"), ("migrate", "--yes")], ids=lambda words: words[0])
def test_a_locked_store_is_not_changed_and_that_is_one_line(
    locked: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(bulk, "TIMEOUT", 0.2)
    monkeypatch.setattr(schema, "LATEST", schema.LATEST + (words[0] == "migrate"))
    monkeypatch.setattr(link, "OPEN_TIMEOUT", 0.2)
    result = call(*words)
    assert (result.exit_code, result.stdout) == (Exit.DOWN, "")
    assert "another writer holds the file" in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


AS_NOBODY = """
import csv, getpass, os, pwd, socket, sqlite3
from onceward.cli import audit, change, check, doctor, inspect, migrate, program, run
from onceward.stores import sqlite
if os.geteuid() == 0:  # root may write to everything
    os.seteuid(65534)
program.start({words!r})
"""


@pytest.mark.skipif(os.name != "posix", reason="needs file permissions")
@pytest.mark.parametrize("words", [["run", "--key", "new", "--", "true"], ["ls"], ["forget", "k", "--yes"], ["audit"]])
def test_a_read_only_store_is_one_line(words: list[str]) -> None:
    home = Path(tempfile.mkdtemp())  # not below a folder that only its owner may enter
    try:
        with Once(f"sqlite:///{home}/onceward.db") as once:
            once.run("k", str)
        (home / "onceward.db").chmod(0o444)
        home.chmod(0o555)
        command = [sys.executable, "-c", AS_NOBODY.format(words=words)]
        done = subprocess.run(command, cwd=home, env=environment(), capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (Exit.BROKEN, "")
        assert done.stderr.startswith("onceward: sqlite:")
        assert done.stderr.count("\n") == 1
        assert "write" in done.stderr
    finally:
        home.chmod(0o755)
        shutil.rmtree(home)


NASTY = {
    "newline": "a\nb\r\tc",
    "escape": "\x1b[2J\x1b]0;owned\x07\x9b31m",
    "bidi": "safe\u202egnp.exe\u2066",
    "emoji": "🦄" * 300,
    "combining": "e\u0301" * 300,
    "megabyte": "x" * (1 << 20),
    "invisible": "\u200b\ufeff",
    "nul": "\0",
}


@pytest.mark.parametrize("key", NASTY.values(), ids=NASTY)
@pytest.mark.parametrize(
    "words", [("ls",), ("show",), ("explain",), ("stats",), ("audit",)], ids=lambda words: words[0]
)
def test_no_key_breaks_the_terminal(filled: Path, key: str, words: tuple[str, ...]) -> None:
    raw = sqlite3.connect("onceward.db")  # written without the library, which would have escaped it
    raw.execute("UPDATE onceward_records SET key = ?, scope = ?, owner = ?, error_type = ?, error = ?", [key] * 5)
    identity = raw.execute("SELECT hex(id) FROM onceward_records").fetchone()[0]
    signed = "INSERT INTO onceward_audit (at, verb, who, why, detail, id, scope, key, state_before) SELECT token,"
    raw.execute(f"{signed} ?, ?, ?, ?, id, ?, ?, ? FROM onceward_records", [key] * 7)
    raw.commit()
    raw.close()
    one = [f"id:{identity}"] if words[0] in ("show", "explain") else []
    runner = CliRunner(env={"COLUMNS": "70"})
    result = runner.invoke(program, [*words, *one, "-o", "table"])
    assert result.exit_code == 0, result.output
    assert all(char.isprintable() for char in result.output.replace("\n", "")), ascii(result.output)
    rows = result.stdout.splitlines()
    if words[0] in ("ls", "stats", "audit"):
        assert len(rows) == {"ls": 2, "stats": 3, "audit": 2}[words[0]]
        room = 90 if words[0] != "audit" else 90 + MAX_LINE_WIDTH  # a reason is shown in full
        assert all(width_of(row) <= room for row in rows)
    assert len(result.output) < 20_000
    piped = call(*words, *one)
    assert piped.stdout.isascii()
    json.loads(piped.stdout)


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("key", [NASTY[name] for name in ("newline", "escape", "bidi", "emoji")] + ["x" * 100_000])
def test_a_key_from_the_command_line_breaks_no_terminal_on_its_way(folder: Path, key: str) -> None:
    """On a terminal: run, its replay, the commands that change the record, and the commands that show it."""
    plain: Any = {"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "100", "PYTHONUTF8": "1"}
    done: list[tuple[int, bytes]] = [
        on_a_terminal(folder, *words, **plain)
        for words in (
            ("run", "--key", key, "--", "echo", "hi"),
            ("run", "--key", key, "--", "echo", "hi"),
            ("run", "--key", key, "--", "echo", "another"),
            ("ls",),
            ("show", key),
            ("explain", key),
            ("forget", key, "--yes", "--why", key[:500]),
            ("show", key),
            ("audit", key),
            ("stats",),
        )
    ]
    assert [code for code, _ in done] == [0, 0, Exit.MISMATCH, 0, 0, 0, 0, Exit.ABSENT, 0, 0]
    for _, seen in done:
        lines = seen.decode().split("\r\n")
        assert all(char.isprintable() for row in lines for char in row), ascii(seen[:300])
        assert max(map(len, lines)) < 1_200
    assert len(done[3][1].splitlines()) == len(done[8][1].splitlines()) == 2, "a title and a row"


def test_a_text_is_cut_to_columns_not_to_characters() -> None:
    assert cut("🦄🦄🦄", 5) == "🦄🦄…"
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "ab…"
    assert width_of("e\u0301") == 1


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_a_terminal_gets_a_coloured_table_unless_no_color_is_set(filled: Path) -> None:
    code, seen = on_a_terminal(filled, "ls", TERM="xterm")
    assert code == 0
    assert b"STATE" in seen
    assert b"\x1b[" in seen
    assert b"\x1b[" not in on_a_terminal(filled, "ls", TERM="xterm", NO_COLOR="1")[1]


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_a_person_is_asked_and_may_say_no(filled: Path) -> None:
    code, seen = on_a_terminal(filled, "forget", "k", typed=b"n\n")
    assert (code, b"Forget 1 record" in seen) == (1, True)
    assert len(json.loads(call("ls").stdout)) == 1
    assert on_a_terminal(filled, "forget", "k", typed=b"y\n")[0] == 0
    assert json.loads(call("ls").stdout) == []


def test_the_help_teaches_with_examples_and_the_exit_codes() -> None:
    for words in (("--help",), ("run", "--help")):
        text = call(*words).stdout
        assert "Examples:" in text
        for code in Exit:
            assert f"{code.value:>3}  {code.meaning}" in text
    for name in program.commands:
        result = call(name, "--help")
        assert result.exit_code == 0
        assert "\\b" not in result.stdout, "click's marker for lines that are not rewrapped"


def test_every_error_of_the_library_has_an_exit_code() -> None:
    def tree(kind: type[OncewardError]) -> list[type[OncewardError]]:
        return [kind, *(one for sub in kind.__subclasses__() for one in tree(sub))]

    for kind in tree(OncewardError):
        assert exit_code_for(kind("x")).meaning


def test_every_setting_is_documented_with_its_variable() -> None:
    assert set(DEFAULTS) == set(VARIABLES)
    page = (Path(__file__).parents[2] / "docs/reference/command.md").read_text(encoding="utf-8")
    for variable in VARIABLES.values():
        assert f"`{variable}`" in page
    for code in Exit:
        assert f"| {code.value} | {code.meaning} |" in page


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_what_click_gives(folder: Path, shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from onceward.cli import main; main()"],
        env={**environment(), "_ONCEWARD_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "_ONCEWARD_COMPLETE" in done.stdout


def test_a_reader_that_stops_is_no_error(filled: Path) -> None:
    shell = f"{sys.executable} -m onceward.cli ls | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], cwd=filled, env=environment(), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("command", ["ls", "audit", "sagas", "purge"])
def test_a_limit_that_is_too_large_is_refused(filled: Path, command: str) -> None:
    result = call(command, "--limit", 10**20)
    assert (result.exit_code, filled.exists()) == (2, True)
    assert "--limit" in result.stderr
    assert "Traceback" not in result.stderr


def test_no_room_for_the_output_is_one_line(filled: Path) -> None:
    shell = f"{sys.executable} -m onceward.cli ls > /dev/full"
    done = subprocess.run(["bash", "-c", shell], cwd=filled, env=environment(), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (1, b"onceward: the output: No space left on device\n")


def test_a_terminal_that_knows_few_characters_gets_numbers_for_the_rest(filled: Path) -> None:
    with Once("sqlite:///onceward.db") as once:
        once.run("füß 🦄", str)
    done = subprocess.run(
        [sys.executable, "-m", "onceward.cli", "ls", "-o", "table"],
        env={**environment(), "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"f\xfc\xdf \\U0001f984" in done.stdout
