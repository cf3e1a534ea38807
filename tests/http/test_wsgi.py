"""Only in WSGI: iterables that servers stop reading, `write`, `exc_info`, bodies without a length."""

from __future__ import annotations

import io
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest

from onceward import Once
from onceward.engine.attempt import current
from onceward.http.body import MAX_IN_MEMORY
from onceward.http.wsgi import IdempotencyMiddleware
from onceward.stores import MemoryStore

App = Callable[[dict[str, Any], Any], Iterable[bytes]]


@pytest.fixture
def once() -> Iterator[Once]:
    with Once(MemoryStore()) as once:
        yield once


def guarded(app: App, once: Once, **choices: Any) -> IdempotencyMiddleware:
    return IdempotencyMiddleware(app, once, principal=lambda environ: "alice", optional=["*"], **choices)


def environ_of(body: bytes = b"{}", **more: Any) -> dict[str, Any]:
    return {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/pay",
        "HTTP_IDEMPOTENCY_KEY": '"k1"',
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        **more,
    }


class Server:
    """A server that reads as much of an answer as the test wants."""

    def __init__(self) -> None:
        self.status = ""
        self.headers: list[tuple[str, str]] = []

    def start(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        self.status, self.headers = status, headers
        return None

    def read(self, app: App, environ: dict[str, Any] | None = None, *, most: int = 1_000) -> list[bytes]:
        answer = app(environ or environ_of(), self.start)
        parts = []
        try:
            for part in answer:
                parts.append(part)
                if len(parts) == most:
                    break
        finally:
            if hasattr(answer, "close"):
                answer.close()
        return parts

    @property
    def replayed(self) -> bool:
        return ("idempotency-replayed", "true") in self.headers


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Streaming:
    """An answer in parts, whose `close` must be called once."""

    def __init__(self, *parts: bytes | Exception) -> None:
        self._parts = parts
        self.runs = self.given = self.closed = 0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Streaming:
        self.runs += 1
        start_response("200 OK", [("Content-Type", "text/plain")])
        return self

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts:
            if isinstance(part, Exception):
                raise part
            self.given += 1
            yield part

    def close(self) -> None:
        self.closed += 1


@pytest.mark.fault("F77")
def test_a_stream_is_given_part_by_part_and_closed_once(once: Once) -> None:
    app = Streaming(b"a", b"b", b"c", b"d")
    middleware = guarded(app, once)
    answer = iter(middleware(environ_of(), Server().start))
    assert next(answer) == b"a"
    assert app.given == 2, "exactly one part is delayed"
    assert [*answer] == [b"b", b"c", b"d"]
    answer.close()  # type: ignore[attr-defined]  # as every server does
    assert app.closed == 1
    assert Server().read(middleware) == [b"abcd"]
    assert app.runs == 1


@pytest.mark.fault("F76")
@pytest.mark.parametrize("most", [1, 2, 3])
def test_when_the_server_stops_reading_the_work_finishes_and_is_kept(once: Once, most: int) -> None:
    app = Streaming(b"a", b"b", b"c", b"d")
    middleware = guarded(app, once)
    assert len(Server().read(middleware, most=most)) == most
    server = Server()
    assert server.read(middleware) == [b"abcd"]
    assert server.replayed
    assert (app.runs, app.closed) == (1, 1)


@pytest.mark.fault("F76")
def test_a_server_that_waits_for_a_stalled_client_lets_the_key_go_and_may_still_come_back(once: Once) -> None:
    """The server blocks our thread, so nothing can finish here: the claim is no longer renewed."""
    app = Streaming(b"a", b"b", b"c", b"d")
    middleware = guarded(app, once, stall_timeout="500ms")
    answer = iter(middleware(environ_of(), Server().start))
    assert next(answer) == b"a"
    assert once.heartbeat.held()
    until(lambda: not once.heartbeat.held())
    assert [*answer] == [b"b", b"c", b"d"], "no other request came meanwhile, so its record counts"
    answer.close()  # type: ignore[attr-defined]  # as every server does
    server = Server()
    assert (server.read(middleware), server.replayed, app.runs) == ([b"abcd"], True, 1)


@pytest.mark.fault("F76")
def test_an_application_that_takes_its_time_for_a_part_is_not_taken_for_a_stalled_client(once: Once) -> None:
    go = threading.Event()

    def parts() -> Iterator[bytes]:
        yield b"a"
        yield b"b"
        assert go.wait(60)
        yield b"c"

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [])
        return parts()

    middleware = guarded(app, once, stall_timeout="20ms")
    looks: list[float] = []
    answer: Any = iter(middleware(environ_of(), Server().start))
    watch_over = answer._start_stall_timer

    def looked(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            go.set()
        watch_over(seconds)

    answer._start_stall_timer = looked
    assert [*answer] == [b"a", b"b", b"c"]
    answer.close()
    server = Server()
    assert (server.read(middleware), server.replayed) == ([b"abc"], True)


@pytest.mark.rival(17)
def test_a_stream_that_breaks_off_frees_the_key(once: Once) -> None:
    app = Streaming(b"a", b"b", LookupError("gone"))
    middleware = guarded(app, once)
    for runs in (1, 2):
        with pytest.raises(LookupError):
            Server().read(middleware)
        assert (app.runs, app.closed) == (runs, runs)


def test_the_old_way_of_writing_is_part_of_the_answer(once: Once) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        write = start_response("201 Created", [])
        write(b"old ")
        write(b"way, ")
        return [b"new way"]

    middleware = guarded(app, once)
    assert [b"".join(Server().read(middleware)) for _ in range(2)] == [b"old way, new way"] * 2


def test_an_application_may_change_its_mind_about_the_status_before_anything_was_sent(once: Once) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        try:
            raise LookupError("late")
        except LookupError:
            start_response("404 Not Found", [], sys.exc_info())
        return [b"not here"]

    server = Server()
    assert server.read(guarded(app, once)) == [b"not here"]
    assert server.status == "404 Not Found"


@pytest.mark.parametrize("before", [1, 2, 3])
def test_an_application_that_changes_its_mind_when_a_part_was_given_breaks_off_as_without_us(
    once: Once, before: int
) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        yield from [b"rows"] * before
        try:
            raise LookupError("late")
        except LookupError:
            start_response("500 Oops", [], sys.exc_info())
        yield b"sorry"

    with pytest.raises(LookupError, match="late"):
        Server().read(guarded(app, once))


def test_an_application_that_answers_twice_gets_an_error_and_its_first_answer_is_not_kept_under_the_second_status(
    once: Once,
) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        yield from [b"a"] * 3
        start_response("201 Created", [])
        yield b"b"

    with pytest.raises(AssertionError, match="start_response"):
        Server().read(guarded(app, once))


@pytest.mark.rival(17)
@pytest.mark.parametrize("parts", [[b"a"], [b"a", b"b", b"c"]], ids=["whole", "stream"])
def test_an_answer_that_the_server_refuses_leaves_no_key_locked(once: Once, parts: list[bytes]) -> None:
    app = Streaming(*parts)

    def refuse(status: str, headers: Any, exc_info: Any = None) -> Any:
        raise ValueError("illegal header value")

    with pytest.raises(ValueError, match="illegal header"):
        guarded(app, once)(environ_of(), refuse)
    assert app.closed == 1
    assert current() is None
    server = Server()
    server.read(guarded(app, once))
    assert server.status == "200 OK"


def test_an_application_without_a_status_has_failed(once: Once) -> None:
    with pytest.raises(Exception, match="did not call start_response"):
        Server().read(guarded(lambda environ, start_response: [b"?"], once))


def test_a_body_that_was_cut_off_is_a_400_and_asks_for_nothing(once: Once) -> None:
    app = Streaming(b"a")
    server = Server()
    body = server.read(guarded(app, once), environ_of(b"ab", CONTENT_LENGTH="3"))
    assert server.status.startswith("400")
    assert b"body_cut_off" in body[0]
    assert app.runs == 0


@pytest.mark.parametrize("length", ["1" + "0" * 30, "0" * 5_000 + "2"])
def test_a_length_that_no_body_has_is_a_413_and_never_an_empty_body(once: Once, length: str) -> None:
    app = Streaming(b"a")
    server = Server()
    server.read(guarded(app, once), environ_of(b"ab", CONTENT_LENGTH=length))
    assert (server.status[:3], app.runs) == ("413", 0)


@pytest.mark.parametrize(
    ("more", "seen"),
    [
        ({"CONTENT_LENGTH": "2"}, b"ab"),
        ({"CONTENT_LENGTH": ""}, b""),
        ({"CONTENT_LENGTH": "", "wsgi.input_terminated": True}, b"abcd"),
        ({"CONTENT_LENGTH": "nonsense", "wsgi.input_terminated": True}, b"abcd"),
    ],
)
def test_a_body_is_as_long_as_it_says_or_as_the_server_says(once: Once, more: dict[str, Any], seen: bytes) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [environ["wsgi.input"].read()]

    assert Server().read(guarded(app, once), environ_of(b"abcd", **more)) == [seen]


@pytest.mark.rival(30)
@pytest.mark.parametrize("path", ["", "/", "//"])
def test_the_root_of_an_application_has_one_slash_however_many_were_sent(once: Once, path: str) -> None:
    app = Streaming(b"a")
    server = Server()
    middleware = IdempotencyMiddleware(app, once, principal=lambda environ: "alice", required=["/"])
    environ = environ_of(SCRIPT_NAME="/mounted", PATH_INFO=path)
    del environ["HTTP_IDEMPOTENCY_KEY"]
    server.read(middleware, environ)
    assert (server.status, app.runs) == ("400 Bad Request", 0)


def failing(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    raise LookupError("crashed")


LARGE = bytes(MAX_IN_MEMORY + 1)


@pytest.mark.parametrize(
    ("app", "environ"),
    [
        (Streaming(b"a", b"b"), environ_of(LARGE)),
        (Streaming(LookupError("crashed")), environ_of(LARGE)),
        (failing, environ_of(LARGE)),
        (Streaming(b"a"), environ_of(LARGE, HTTP_IDEMPOTENCY_KEY='"done"')),
        (Streaming(b"a"), environ_of(LARGE + b"!", HTTP_IDEMPOTENCY_KEY='"done"')),
        (Streaming(b"a"), environ_of(LARGE, CONTENT_LENGTH=str(len(LARGE) + 1))),
        (Streaming(b"a"), environ_of(LARGE, CONTENT_LENGTH="", **{"wsgi.input_terminated": True})),
    ],
    ids=["answered", "crashed in a part", "crashed", "replayed", "refused", "cut off", "too large"],
)
def test_the_file_of_a_large_body_is_closed_however_its_request_ends(
    once: Once, app: App, environ: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    files: list[Any] = []
    make = tempfile.TemporaryFile

    def noted(*args: Any, **options: Any) -> Any:
        files.append(make(*args, **options))
        return files[-1]

    monkeypatch.setattr("onceward.http.body.tempfile.TemporaryFile", noted)
    middleware = guarded(app, once, max_body=MAX_IN_MEMORY if environ.get("wsgi.input_terminated") else 10_000_000)
    Server().read(guarded(Streaming(b"a"), once), environ_of(LARGE, HTTP_IDEMPOTENCY_KEY='"done"'))
    with suppress(LookupError):
        Server().read(middleware, environ)
    assert files
    assert all(file.closed for file in files)


def test_a_path_that_is_not_ascii_is_compared_as_the_text_that_it_is(once: Once) -> None:
    app = Streaming(b"a")
    middleware = IdempotencyMiddleware(app, once, principal=lambda environ: "alice", optional=["/zahlung/für/{id}"])
    path = "/zahlung/für/5".encode().decode("latin-1")
    for _ in range(2):
        Server().read(middleware, environ_of(PATH_INFO=path))
    assert app.runs == 1


def test_the_standard_librarys_validator_accepts_both_sides(once: Once) -> None:
    runs: list[bytes] = []

    def app(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        runs.append(environ["wsgi.input"].read(-1))
        start_response("200 OK", [("Content-Type", "text/plain")])
        yield b"one, "
        yield b"two"

    middleware = validator(guarded(validator(app), once))
    answers = []
    for key in ('"k1"', '"k1"', "malformed", None):
        environ: dict[str, Any] = {
            "REQUEST_METHOD": "POST",
            "SCRIPT_NAME": "",
            "PATH_INFO": "/pay",
            "CONTENT_LENGTH": "2",
        }
        environ["wsgi.input"] = io.BytesIO(b"{}")
        environ["QUERY_STRING"] = ""
        if key is not None:
            environ["HTTP_IDEMPOTENCY_KEY"] = key
        setup_testing_defaults(environ)
        answers.append(b"".join(Server().read(middleware, environ)))
    assert answers[:2] == [b"one, two"] * 2
    assert b"invalid_key" in answers[2]
    assert answers[3] == b"one, two"
    assert runs == [b"{}", b"{}"], "once with the key, and once without any"
