"""URLs that cannot work: a clear error before anything is connected, which never shows the password."""

from __future__ import annotations

import pytest

from onceward import ConfigurationError, Once
from onceward.stores.postgres import url as postgres_url

SECRET = "SE%ZZCRET"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}@host/shop",
        "postgresql://me:SE%00CRET@host/shop",
        "postgresql://me:SE[CRET@host/shop",
        "postgresql://me:12#SECRET@host/shop",
        "redis://:SE[CRET@host",
    ],
)
def test_a_password_that_was_not_encoded_is_not_shown(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Once(url).read("k")
    assert "CRET" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://[::1", "cannot be parsed"),
        ("redis://[::1", "cannot be parsed"),
        ("firestore://[", "cannot be parsed"),
        ("redis://host/shop", "the database must be a number"),
        ("sqlite:///\ud800.db", "names no file"),
    ],
)
def test_a_url_that_cannot_work_is_reported(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Once(url).read("k")


def test_a_socket_of_postgresql_is_named_as_libpq_wants_it() -> None:
    settings = postgres_url.parse("postgresql:///shop?host=/run/postgresql&password=SECRET")
    assert settings.conninfo.startswith("postgresql:///shop?host=%2Frun%2Fpostgresql&")
    assert settings.name == "postgresql:///shop?host=%2Frun%2Fpostgresql"
