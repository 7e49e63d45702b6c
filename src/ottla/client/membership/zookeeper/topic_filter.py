"""Topic patterns as Kafka 0.8's consumers exchange them: the text of a regular expression that Java understands."""

from __future__ import annotations

import re
from typing import Final

from ottla.client.errors import ArgumentError

_FLAGS: Final = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s", re.VERBOSE: "x"}
_SEPARATORS: Final = re.compile(r"[,\s]|^[\"']|[\"']$")


def filter_text(pattern: re.Pattern[str]) -> str:
    """Returns the text to register. Raises `ArgumentError` for patterns that a Kafka 0.8 consumer would interpret
    differently: it treats a comma as an alternative, and drops spaces and quotes."""
    text = pattern.pattern
    found = _SEPARATORS.search(text)
    if found is not None:
        raise ArgumentError(
            f"the pattern {text!r} contains {found[0]!r}, which Kafka 0.8's consumers take for a separator or drop; "
            "write it without, for example a(b|bb) instead of ab{1,2}"
        )
    flags = "".join(letter for flag, letter in _FLAGS.items() if pattern.flags & flag)
    if not flags or re.match(r"\(\?[a-zA-Z]+\)", text):  # inline flags come first, and are part of the text
        return text
    return f"(?{flags}){text}"
