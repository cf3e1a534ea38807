"""Format errors for records, logs and people."""

from __future__ import annotations

MAX_MESSAGE_LENGTH = 500  # enough to recognise an error; the full traceback is in the application's log


def format_error(error: BaseException) -> str:
    """Return the error's type and message."""
    return f"{type(error).__qualname__}: {message_of(error)}"


def message_of(error: BaseException) -> str:
    """Return the error's message, shortened: it is stored, and shown to people."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 (a broken __str__ must not hide the failure that it describes)
        text = "(its message cannot be shown)"
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")  # a lone surrogate could not be stored
    return text if len(text) <= MAX_MESSAGE_LENGTH else text[: MAX_MESSAGE_LENGTH - 1] + "…"
