"""Send an alert to a URL as JSON. Chat tools such as Slack and Mattermost show its field `text`."""

from __future__ import annotations

import ipaddress
import json
from typing import Any, Final
from urllib.parse import urlsplit

from onceward.errors import ConfigurationError
from onceward.observe.rules import Broken

TIMEOUT: Final = 10.0
"""Timeout in seconds for connecting and for each read."""

SUCCESS: Final = 2
"""The first digit of a success status."""


class AlertNotSent(Exception):
    """An alert was not sent. The message names only the program or the host: arguments and the URL may be secret."""


def check_url(url: str) -> str:
    """Return the URL if alerts may be sent there: by https, or by http to this machine."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise ConfigurationError("--alert-url is not a URL", hint="pass https://host/path") from None
    if parts.scheme not in ("https", "http") or not host:
        raise ConfigurationError("--alert-url is not an http URL", hint="pass https://host/path")
    if parts.scheme == "http" and not _is_loopback(host):
        raise ConfigurationError(
            f"--alert-url would send alerts to {host} unencrypted", hint="use https; http is for this machine only"
        )
    if parts.username is not None:
        raise ConfigurationError(
            "--alert-url contains a user name", hint="use a URL with a token in its path, or --alert COMMAND"
        )
    return url


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def alert_document(broken: Broken, store: str) -> dict[str, Any]:
    """Return the alert as JSON. `text` is the whole alert in readable form; `store` is a URL without secrets."""
    return {
        "text": f"Onceward: {broken}\nMore: {broken.runbook}\nStore: {store}",
        "store": store,
        "rule": broken.rule,
        "scope": broken.scope,
        "figure": broken.figure,
        "limit": broken.limit,
        "todo": broken.todo,
        "runbook": broken.runbook,
    }


def post_alert(url: str, store: str, broken: Broken) -> None:
    """Send the alert. Raise AlertNotSent unless the reply has a 2xx status; redirects are not followed."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection  # imported here, because few calls need them

    parts = urlsplit(url)
    host = parts.hostname or ""
    connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = connect(host, parts.port, timeout=TIMEOUT)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    body = json.dumps(alert_document(broken, store)).encode()
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json", "User-Agent": "onceward"})
        status = connection.getresponse().status  # the body is not read: it may be endless
    except (OSError, HTTPException) as error:
        raise AlertNotSent(f"{host} could not be reached: {type(error).__name__}") from None
    finally:
        connection.close()
    if status // 100 != SUCCESS:
        raise AlertNotSent(f"{host} answered with status {status}")
