"""Hide fields of stored results and inputs whose names suggest a secret or personal data."""

from __future__ import annotations

import re
from typing import Any, Final

HIDDEN: Final = "***"
DEFAULT_FIELDS: Final = (
    "pass", "secret", "token", "credential", "pwd", "authorization", "cookie", "api_key", "apikey", "private",
    "card", "cvc", "cvv", "iban", "account_number", "ssn",
)  # fmt: skip


class Redaction:
    """The rule that hides values. A field is hidden if its name contains one of the words `fields`, in any case.

    Without words, common names of secrets and payment data are hidden.
    """

    def __init__(self, *fields: str) -> None:
        words = fields or DEFAULT_FIELDS
        self._hides = re.compile("|".join(map(re.escape, words)), re.IGNORECASE).search

    def hides(self, field: str) -> bool:
        """Return whether the value of a `field` with this name is hidden."""
        return self._hides(field) is not None

    def apply(self, value: Any) -> Any:
        """Return a JSON `value` with hidden fields replaced by `***`, at any depth.

        A list of two whose first item is a hidden name is a field too: headers, and maps whose keys are not all texts.
        """
        if isinstance(value, dict):
            return {name: HIDDEN if self.hides(str(name)) else self.apply(one) for name, one in value.items()}
        if isinstance(value, list):
            if self._is_hidden_pair(value):
                return [value[0], HIDDEN]
            return [self.apply(one) for one in value]
        return value

    def _is_hidden_pair(self, value: list[Any]) -> bool:
        return len(value) == len(("name", "value")) and isinstance(value[0], str) and self.hides(value[0])
