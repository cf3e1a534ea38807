"""The parts of google-cloud-bigquery that we use, imported when a BigQuery warehouse is opened."""

from __future__ import annotations

from concurrent.futures import TimeoutError as TookTooLong
from typing import Any

from onceward.errors import MissingExtra


class Driver:
    """The names that we use, and the exceptions that mean "no reply"."""

    def __init__(self) -> None:
        import requests
        from google.api_core import exceptions
        from google.auth.credentials import AnonymousCredentials
        from google.auth.exceptions import GoogleAuthError, TransportError
        from google.cloud import bigquery

        self.Client = bigquery.Client
        self.DatasetReference = bigquery.DatasetReference.from_string
        self.QueryJobConfig = bigquery.QueryJobConfig
        self.ScalarQueryParameter = bigquery.ScalarQueryParameter
        self.SchemaField = bigquery.SchemaField
        self.Table = bigquery.Table
        self.Anonymous = AnonymousCredentials
        self.AuthError = GoogleAuthError
        self.errors = exceptions
        self.no_answer = (requests.exceptions.RequestException, TransportError, ConnectionError, TookTooLong)
        self.any_error = (exceptions.GoogleAPIError, GoogleAuthError, *self.no_answer)


def driver() -> Any:
    try:
        return Driver()
    except ModuleNotFoundError as error:
        raise MissingExtra("google-cloud-bigquery is not installed", hint="install onceward[bigquery]") from error
