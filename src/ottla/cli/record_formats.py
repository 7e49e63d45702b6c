"""Records as text: templates like kcat's, and JSON."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ottla.records.record import Header

if TYPE_CHECKING:
    from ottla.client.consume import ConsumerRecord

Formatter = Callable[["ConsumerRecord"], bytes]

DEFAULT_TEMPLATE: Final = "%v\\n"

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
_TOKEN = re.compile(r"%(?P<field>.)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.)|(?P<text>[^%\\]+|[%\\])", re.DOTALL)


def _number(value: int) -> bytes:
    return b"%d" % value


def _headers(headers: tuple[Header, ...]) -> bytes:
    return b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in headers)


_FIELDS: Final[dict[str, Formatter]] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: _number(record.partition),
    "o": lambda record: _number(record.offset),
    "k": lambda record: record.key or b"",
    "v": lambda record: record.value or b"",
    "s": lambda record: record.value or b"",
    "h": lambda record: _headers(record.headers),
    "T": lambda record: _number(record.timestamp),
    "K": lambda record: _number(-1 if record.key is None else len(record.key)),
    "S": lambda record: _number(-1 if record.value is None else len(record.value)),
}
FIELD_HELP: Final = (
    "%k key, %v (or %s) value, %h headers, %t topic, %p partition, %o offset, %T timestamp in ms, "
    "%K and %S length of key and value (-1: null), %% a percent sign; \\n, \\t, \\x1f as in Python"
)


def template_formatter(template: str) -> Formatter:
    """Returns a function that formats a record. The template is parsed once, so each record is cheap."""
    parts = [_part(token, template) for token in _TOKEN.finditer(template)]
    if len(parts) == 2 and parts[0] is _FIELDS["v"] and isinstance(parts[1], bytes):
        end = parts[1]
        return lambda record: (record.value or b"") + end
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record) for part in parts)


def _part(token: re.Match[str], template: str) -> bytes | Formatter:
    if (field := token["field"]) is not None:
        if field == "%":
            return b"%"
        if field not in _FIELDS:
            raise ValueError(f"unknown field %{field} in --format {template!r}; use {FIELD_HELP}")
        return _FIELDS[field]
    if token["hex"] is not None:
        return bytes.fromhex(token["hex"])
    if (escape := token["escape"]) is not None:
        return _ESCAPES.get(escape, f"\\{escape}").encode()
    return token["text"].encode()


def json_formatter(record: ConsumerRecord) -> bytes:
    """One JSON object per line, in the format that `ottla produce --json` reads."""
    line: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_json_bytes("key", record.key),
        **_json_bytes("value", record.value),
    }
    if record.headers:
        line["headers"] = [{"name": name, **_json_bytes("value", value)} for name, value in record.headers]
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def _json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    """UTF-8 text as is; other bytes as base64 under another key."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


class LineError(ValueError):
    """A line of input that is not a valid record."""


class NewRecord:
    """A record to produce, parsed from a line of input."""

    __slots__ = ("headers", "key", "partition", "timestamp_ms", "value")

    def __init__(
        self,
        value: bytes | None,
        key: bytes | None = None,
        headers: tuple[Header, ...] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        self.value = value
        self.key = key
        self.headers = headers
        self.partition = partition
        self.timestamp_ms = timestamp_ms


def read_text_line(line: bytes, key_separator: bytes | None, header_separator: bytes | None) -> NewRecord:
    """Parses `headers<tab>key<separator>value`, depending on the separators given; headers are `name=value,…`."""
    headers: tuple[Header, ...] = ()
    if header_separator is not None:
        given, found, line = line.partition(header_separator)
        if not found:
            raise LineError(f"no {header_separator.decode(errors='replace')!r} after the headers")
        headers = parse_headers(given.decode("utf-8", "replace"))
    if key_separator is None:
        return NewRecord(line, None, headers)
    key, found, value = line.partition(key_separator)
    if not found:
        raise LineError(f"no {key_separator.decode(errors='replace')!r} between key and value")
    return NewRecord(value, key, headers)


def parse_headers(text: str) -> tuple[Header, ...]:
    """Parses `name=value,…`."""
    headers: list[Header] = []
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise LineError(f"{part!r} is not a header of the form name=value")
        headers.append((name, value.encode()))
    return tuple(headers)


def read_json_line(line: bytes) -> NewRecord:
    """Parses an object with `value`, and optionally `key`, `headers`, `partition` and `timestamp`. A value that is
    neither a string nor null is sent as JSON; `value_base64` and `key_base64` hold binary data."""
    try:
        given = json.loads(line)
    except ValueError as error:
        raise LineError(f"not valid JSON: {error}") from None
    if not isinstance(given, dict) or not given.keys() & {"value", "value_base64"}:
        raise LineError('not a JSON object with a "value"')
    headers = given.get("headers") or []
    if isinstance(headers, dict):
        headers = [{"name": name, "value": value} for name, value in headers.items()]
    if not isinstance(headers, list) or not all(isinstance(one, dict) and "name" in one for one in headers):
        raise LineError('"headers" must be an object, or a list of objects with "name" and "value"')
    return NewRecord(
        _bytes_of(given, "value"),
        _bytes_of(given, "key"),
        tuple((str(header["name"]), _bytes_of(header, "value")) for header in headers),
        _whole_number(given, "partition"),
        _whole_number(given, "timestamp"),
    )


def _bytes_of(given: dict[str, Any], name: str) -> bytes | None:
    encoded = given.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (ValueError, TypeError):
            raise LineError(f'"{name}_base64" is not valid base64') from None
    value = given.get(name)
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value, ensure_ascii=False).encode()


def _whole_number(given: dict[str, Any], name: str) -> int | None:
    value = given.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise LineError(f'"{name}" must be an integer, not {value!r}')
