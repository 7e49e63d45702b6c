"""Finds the first cause of a failed query in layers of Java and Python exceptions that wrap each other."""

from __future__ import annotations

import re
from typing import Final

_TRACEBACK: Final = "Traceback (most recent call last)"
_STATE: Final = re.compile(r"\s*SQLSTATE: \w{5}.*", re.DOTALL)
_CONDITION: Final = re.compile(r"^\[[A-Z][A-Z0-9_.]+\]\s*")
_RAISED: Final = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<text>.*))?$", re.DOTALL)
_TASK: Final = re.compile(r"most recent failure: [^:]*: (?P<text>.*?)(?:\n\s*at |\nDriver stacktrace:|$)", re.DOTALL)
_JAVA_KIND: Final = re.compile(r"^(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ")
_PLAN: Final = re.compile(r"\n\s*(?:'|\+- |== SQL|=== Streaming Query|JVM stacktrace).*", re.DOTALL)
_MOST_CAUSES: Final = 30


def root_cause(error: BaseException) -> str:
    """Returns a sentence or two; never empty."""
    for message in reversed(_messages(error)):
        if told := java_message(message):
            return told
    return type(error).__name__


def java_message(message: str) -> str:
    """Extracts the text of a Spark message; for a Python traceback, the exception at its end."""
    text = message.strip()
    if _TRACEBACK in text:
        return _last_words(text.rpartition(_TRACEBACK)[2])
    if found := _TASK.search(text):
        text = found["text"].strip()
    text = _PLAN.sub("", _STATE.sub("", text)).strip()
    text = _JAVA_KIND.sub("", text)
    return _CONDITION.sub("", text).strip()


def _messages(error: BaseException) -> list[str]:
    """The message of the error, and of each of its causes in Java, ending with the first cause."""
    messages = [str(error)]
    cause = getattr(error, "_origin", None)
    while cause is not None and len(messages) < _MOST_CAUSES:
        messages.append(str(cause.getMessage() or ""))
        cause = cause.getCause()
    return messages


def _last_words(traceback: str) -> str:
    """The exception at the end of a traceback, with its class unless it is ours: our messages are complete."""
    lines = _STATE.sub("", traceback).rstrip().splitlines()
    starts = [index for index, line in enumerate(lines) if line.startswith("  ")]
    words = "\n".join(lines[starts[-1] + 1 :] if starts else lines).strip()
    raised = _RAISED.match(words)
    if raised is None:
        return words
    kind, text = raised["kind"], (raised["text"] or "").strip()
    if kind.startswith("ottla.") and text:
        return text
    return f"{kind.rpartition('.')[2]}: {text}" if text else kind.rpartition(".")[2]
