"""Format errors for records, logs and people."""

from __future__ import annotations

from functools import cache
from types import CodeType

from onceward.errors import ConfigurationError, InputNotStored, InvalidKey, StoreError

MAX_MESSAGE_LENGTH = 500  # enough to recognise an error; the full traceback is in the application's log

MAX_FRAME_LENGTH = 200


def format_error(error: BaseException) -> str:
    """Return the error's type and message."""
    return f"{type(error).__qualname__}: {message_of(error)}"


def error_for_log(error: BaseException) -> str:
    """Return the error as text for an event, without messages that may quote keys, results or payloads."""
    if isinstance(error, StoreError | ConfigurationError) and not isinstance(error, InvalidKey | InputNotStored):
        return format_error(error)
    place = raised_in(error)
    name = type(error).__qualname__
    return f"{name} in {place}" if place else name


def message_of(error: BaseException) -> str:
    """Return the error's message, shortened: it is stored, and shown to people."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 (a broken __str__ must not hide the failure that it describes)
        text = "(its message cannot be shown)"
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")  # a lone surrogate could not be stored
    return text if len(text) <= MAX_MESSAGE_LENGTH else text[: MAX_MESSAGE_LENGTH - 1] + "…"


def raised_in(error: BaseException | None) -> str:
    """Return the application's innermost function that the error came through, as `module.function:line`.

    Frames of Onceward, of the standard library and of installed packages do not count, unless there are no others.
    Return "" if the error was not raised.
    """
    found = other = ""
    trace = None if error is None else error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        module = str(frame.f_globals.get("__name__", "?"))
        if not module.startswith("onceward."):
            name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name).replace("<locals>.", "")
            other = f"{module}.{name}:{trace.tb_lineno}"[:MAX_FRAME_LENGTH]
            if _is_application(frame.f_code):
                found = other
        trace = trace.tb_next
    return found or other


def _is_application(code: CodeType) -> bool:
    return not code.co_filename.startswith(("<frozen", *_library_folders()))


@cache
def _library_folders() -> tuple[str, ...]:
    import sysconfig  # imported here: only failures need it

    paths = sysconfig.get_paths()
    return tuple({paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})
