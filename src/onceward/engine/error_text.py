"""Errors in words: what is stored of them, and shown to people."""

from __future__ import annotations

MAX_MESSAGE_LENGTH = 500  # enough to recognise an error; the traceback is in the log of whoever raised it


def format_error(error: BaseException) -> str:
    """Its type and its message."""
    return f"{type(error).__qualname__}: {message_of(error)}"


def message_of(error: BaseException) -> str:
    """The error's own text, short: it is stored, and may be shown to people."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 (a broken __str__ must not hide the failure that it describes)
        text = "(its message cannot be shown)"
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")  # a lone surrogate could not be stored
    return text if len(text) <= MAX_MESSAGE_LENGTH else text[: MAX_MESSAGE_LENGTH - 1] + "…"
