"""No message, `repr`, log or command output contains a password, however malformed the URL is."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncOnce, Once
from onceward.errors import ConfigurationError
from onceward.objects import open_objects
from onceward.people import People
from onceward.protocol.secrets import text_without_secrets, url_without_secrets
from onceward.queues.from_url import open_queue
from onceward.queues.redis_streams import RedisStreamQueue
from onceward.stores.postgres.url import parse as parse_postgres
from onceward.stores.redis.address import parse as parse_redis
from onceward.stores.registry import open_store
from onceward.warehouse import open_warehouse
from tests.cli.calls import call

SECRET = "hunter2zzz"
SCHEMES = ("postgresql", "postgres", "redis", "rediss", "unix", "firestore", "sqlite", "memory", "mysql", "bigquery",
           "duckdb", "s3", "gs", "file")  # fmt: skip
SHAPES = (
    "{}://u:{}@host/db",
    "{}:u:{}@host/db",
    "{}:/u:{}@host/db",
    "{}//u:{}@host/db",
    "{}:///u:{}@host/db",
    "{}:// u:{}@host/db",
    "{};//u:{}@host",
    " {}://u:{}@host/db",
    "'{}://u:{}@host/db'",
    "jdbc:{}://u:{}@host/db",
    "{}+asyncpg://u:{}@host/db",
    "{}://u:{}/x@host/db",
    "{}://u:{}#x@host/db",
    "{}://u:{}?x@host/db",
    "{}://u:a/{}@host/db",
    "{}://u:a?{}@host/db",
    "{}://u:a#{}@host/db",
    "{}://u:a@{}@host/db",
    "{}://u:{}@h@host/db",
    "{}://u:a b{}@host/db",
    "{}://u:{}@ho st/db\n",
    "{}://u:{}@host:port/db",
    "{}://u:[{}@host/db",
    "{}://u:{}@[host/db",
    "{}://u:{}%zz@host/db",
    "{}://u:{}\u2100@host/db",
    "{}://:{}@host",
    "{}://u:{}/db",
    "{}://:{}",
    "{}://u:{}@host/db/more",
    "{}://u:{}@host:6379/0?db=x",
    "{}://host/db?password={}",
    "{}://host/db?user=u&passwd={}",
    "{}://host/db?sslpassword={}&nope=1",
    "{0}://host/db?password={1}&password={1}",
    "{}://host/db?secret_access_key={}&x=1",
    "{}://host/db?token={}",
    "{}://host/db?api_key={}",
    "{}://host/db?password={}&=",
    "{}://host/db?password=a b{}",
    "{}://host/db?password=a'{}",
    "{}://host/db?pass%77ord={}",
    "{}://host/db?%20password={}",
    "{}://host/db?a%3D1%26password={}",
    "{}://host/db?auth[password]={}",
    "{}://host/db?password=a&{}",
    "{}://host/db?password=a&{}&b",
    "{}://host/db?password%3D{}",
    "{}://host/db?password%3d{}&connect_timeout=3",
    "{}://u%3A{}@host/db",
    "host={} user=u password={} dbname=d",
    "host={} user=u password = {}",
)
OPENERS: tuple[Callable[[str], Any], ...] = (open_store, Once, AsyncOnce, People, open_warehouse, open_objects)


def shown(value: Any) -> str:
    """Return everything that a log or a debugger shows of an object."""
    parts = [value, getattr(value, "name", ""), getattr(value, "url", ""), *getattr(value, "__dict__", {}).values()]
    own = [part for part in parts if not isinstance(part, str | bytes)]
    return " ".join(map(repr, own)) + str(value)


def text_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error, limit=0)) + repr(error)


@pytest.mark.finding("N39")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_malformed_url_is_reported_without_its_password(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.DEBUG)
    for shape in SHAPES:
        url = shape.format(scheme, SECRET)
        if scheme in ("sqlite", "duckdb", "file", "unix") and ":///" in shape:
            continue  # the path of a file, which is shown
        if scheme in ("bigquery", "firestore") and "@" not in shape and "?" not in shape:
            continue  # a project, which is shown; such a URL has no password
        assert SECRET not in url_without_secrets(url), shape
        for opener in OPENERS:
            try:
                text = shown(opener(url))
            except Exception as error:
                text = text_of(error)
            assert SECRET not in text, (opener, shape)
    assert SECRET not in caplog.text


@pytest.mark.finding("N39")
def test_the_settings_of_a_valid_url_are_shown_without_its_password() -> None:
    for settings in (
        parse_postgres(f"postgresql://me:{SECRET}@db/shop?sslpassword={SECRET}"),
        parse_redis(f"redis://me:{SECRET}@cache:6379/0"),
    ):
        assert SECRET not in f"{settings!r} {settings}"


@pytest.mark.finding("N39")
@pytest.mark.parametrize("shape", SHAPES)
def test_the_command_shows_no_password(shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    url = shape.format("postgresql", SECRET)
    for command in (["config"], ["config", "-o", "json"], ["ls"], ["doctor"]):
        result = call(*command, "--store", url)
        assert SECRET not in result.stdout + result.stderr
    (tmp_path / "onceward.toml").write_text(f'[store]\nurl = "redis://u:{SECRET}@host/0"\n')
    result = call("config")
    assert SECRET not in result.stdout + result.stderr


@pytest.mark.finding("N39")
async def test_a_queue_reports_a_malformed_url_without_its_password() -> None:
    for url in (f"redis://u:{SECRET}/0", f"redis://u:{SECRET}@host:port/0"):
        with pytest.raises(ConfigurationError) as refused:
            await RedisStreamQueue(url, stream="orders", group="g").open()
        assert SECRET not in text_of(refused.value)


@pytest.mark.finding("N39")
def test_the_token_of_a_nats_url_is_hidden() -> None:
    for scheme in ("nats", "tls", "ws", "wss"):
        url = f"{scheme}://{SECRET}@host:4222"
        assert url_without_secrets(url) == f"{scheme}://***@host:4222"
        assert (
            text_without_secrets(f"cannot reach {url}, retrying") == f"cannot reach {scheme}://***@host:4222, retrying"
        )
    with pytest.raises(ConfigurationError) as refused:
        open_queue(f"nats://{SECRET}@127.0.0.1:1")
    assert SECRET not in text_of(refused.value)


@pytest.mark.finding("N39")
@pytest.mark.parametrize(
    "url",
    [
        f"nat://{SECRET}@host:4222",
        f"nats:/{SECRET}@host:4222",
        f"nats:///{SECRET}@host:4222",
        f"nats:// {SECRET}@host:4222",
        f"NATS://{SECRET}@host:4222",
        f"'nats://{SECRET}@host:4222'",
        f'"nats://{SECRET}@host:4222"',
        f" nats://{SECRET}@host:4222",
        f"nats://{SECRET}/x@host:4222",
        f"nats://a@{SECRET}@host:4222",
        f"nats://u:a@{SECRET}@host:4222",
        f"nats://{SECRET}@host,nats://{SECRET}@host:4222",
        f"nats://{SECRET}@host,{SECRET}@host:4222",
        f"nats://{SECRET}@host, {SECRET}@host:4222",
        f"nats://host,nats://{SECRET}@host:4222",
        f"nats://host:4222,nats://{SECRET}@host:4222",
        f"postgresql://u:a@{SECRET}@host:4222",
        f"postgresql:///u:{SECRET}@host:4222",
        f"x://u:{SECRET}@host:4222",
    ],
)
def test_a_token_is_hidden_in_malformed_urls_and_in_lists_of_servers(url: str) -> None:
    for text in (url_without_secrets(url), text_without_secrets(url), text_without_secrets(f"no server at {url}, why")):
        assert SECRET not in text
        assert "@host:4222" in text
    with pytest.raises(ConfigurationError) as refused:
        open_queue(url)
    assert SECRET not in text_of(refused.value)


@pytest.mark.finding("N39")
def test_secrets_are_found_quickly_in_a_long_text() -> None:
    """With backtracking, this takes minutes."""
    long = "?" + "key" * 200_000
    assert text_without_secrets(f"{long} ?a=1&my_token={SECRET}&b=2") == f"{long} ?a=1&my_token=***&b=2"


def test_what_is_no_password_stays_readable() -> None:
    for url in ("postgresql://me@db:5432/shop", "sqlite:///a:b.db", "redis://[::1]:6379/0", "memory://", "onceward.db"):
        assert url_without_secrets(url) == url
    assert url_without_secrets("postgresql://me:x@db/shop") == "postgresql://me:***@db/shop"
    for url in ("POSTGRESQL://me@db/shop", "postgresql+asyncpg://me@db/shop", "C:/Users/me@work/a.db", "me@work"):
        assert text_without_secrets(f"see {url}, or retry") == f"see {url}, or retry"
    assert url_without_secrets("POSTGRESQL://me@db/shop") == "POSTGRESQL://me@db/shop"
    assert SECRET not in text_without_secrets(f"sqlite:///a.db,nats://{SECRET}@host:4222")
    for path in ("sqlite:///a:b@c.db", "SQLite:///a:b@c.db"):
        assert url_without_secrets(path) == path
        assert text_without_secrets(f"{path} is locked") == f"{path} is locked"
    message = "pass key=order.id, see postgresql://me:x@db/shop?sslpassword=y&a=1"
    assert text_without_secrets(message) == "pass key=order.id, see postgresql://me:***@db/shop?sslpassword=***&a=1"
