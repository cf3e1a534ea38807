"""Parse BigQuery URLs: `bigquery://project/dataset?location=EU`."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from onceward.errors import ConfigurationError
from onceward.protocol.duration import microseconds
from onceward.protocol.secrets import setting_name_without_secrets, url_without_secrets

EXAMPLE: Final = "write bigquery://project/dataset, with ?location=EU if it is not in the US"
TIMEOUT: Final = "10m"
SETTINGS: Final = ("location", "endpoint", "timeout")

_PROJECT: Final = re.compile(r"[a-z0-9][a-z0-9.:-]{2,60}[a-z0-9]")
_DATASET: Final = re.compile(r"[A-Za-z0-9_]{1,1024}")


class BigQueryAddress(Struct, frozen=True):
    """The project and dataset of the tables, and the timeout of a job."""

    project: str
    dataset: str
    location: str | None
    endpoint: str | None
    """The URL of an emulator. It is used without credentials."""

    timeout: float

    @property
    def name(self) -> str:
        return f"bigquery://{self.project}/{self.dataset}"


def parse(url: str) -> BigQueryAddress:
    try:
        parts = urlsplit(url)
    except ValueError:  # a [ without a matching ]
        raise ConfigurationError(
            f"{url_without_secrets(url)!r} does not name a BigQuery dataset", hint=EXAMPLE
        ) from None
    dataset = parts.path.strip("/")
    settings = dict(parse_qsl(parts.query, keep_blank_values=True))
    if not _PROJECT.fullmatch(parts.netloc) or not _DATASET.fullmatch(dataset) or parts.fragment or "@" in url:
        raise ConfigurationError(f"{url_without_secrets(url)!r} does not name a BigQuery dataset", hint=EXAMPLE)
    unknown = sorted(settings.keys() - set(SETTINGS))
    if unknown:
        shown = [setting_name_without_secrets(name, url) for name in unknown]
        raise ConfigurationError(
            f"unknown settings in a BigQuery URL: {', '.join(shown)}", hint=f"the settings are: {', '.join(SETTINGS)}"
        )
    return BigQueryAddress(
        parts.netloc,
        dataset,
        settings.get("location"),
        settings.get("endpoint"),
        microseconds(settings.get("timeout", TIMEOUT), "timeout") / 1_000_000,
    )
