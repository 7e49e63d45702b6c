"""Records as lines, and lines as records."""

from __future__ import annotations

import json

import pytest

from ottla.cli.record_formats import (
    LineError,
    json_formatter,
    parse_headers,
    read_json_line,
    read_text_line,
    template_formatter,
)
from ottla.client.consume import ConsumerRecord

RECORD = ConsumerRecord("events", 3, 42, 1_700_000_000_123, 0, b"key", b"value", (("a", b"1"), ("b", None)))
EMPTY = ConsumerRecord("events", 3, 7, -1, 0, None, None)


@pytest.mark.parametrize(
    ("template", "full", "empty"),
    [
        ("%v\\n", b"value\n", b"\n"),
        ("%s", b"value", b""),
        ("%k=%v\\t%h", b"key=value\ta=1,b=NULL", b"=\t"),
        ("%t-%p@%o %T", b"events-3@42 1700000000123", b"events-3@7 -1"),
        ("%K/%S", b"3/5", b"-1/-1"),
        ("100%% \\x41\\\\\\q", b"100% A\\\\q", b"100% A\\\\q"),
        ("", b"", b""),
    ],
)
def test_templates(template: str, full: bytes, empty: bytes) -> None:
    formatter = template_formatter(template)
    assert formatter(RECORD) == full
    assert formatter(EMPTY) == empty


def test_a_template_with_an_unknown_field_says_which_there_are() -> None:
    with pytest.raises(ValueError, match=r"unknown field %y in --format '%y'; use %k key"):
        template_formatter("%y")


def test_json_holds_everything_and_can_be_produced_again() -> None:
    record = ConsumerRecord("events", 3, 1, 5, 0, b"\xff\x00", "žluť".encode(), (("h", b"\xfe"), ("n", None)))
    line = json_formatter(record)
    assert json.loads(line) == {
        "topic": "events",
        "partition": 3,
        "offset": 1,
        "timestamp": 5,
        "key_base64": "/wA=",
        "value": "žluť",
        "headers": [{"name": "h", "value_base64": "/g=="}, {"name": "n", "value": None}],
    }
    again = read_json_line(line)
    assert (again.key, again.value, again.headers) == (record.key, record.value, record.headers)
    assert (again.partition, again.timestamp_ms) == (3, 5)


def test_json_lines() -> None:
    record = read_json_line(b'{"value": {"a": [1, true]}, "key": 7, "headers": {"x": "y"}}')
    assert (record.value, record.key, record.headers) == (b'{"a": [1, true]}', b"7", (("x", b"y"),))
    assert (record.partition, record.timestamp_ms) == (None, None)
    assert read_json_line(b'{"value": null}').value is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"nonsense", "not valid JSON"),
        (b"[1]", 'not a JSON object with a "value"'),
        (b'{"key": "k"}', 'not a JSON object with a "value"'),
        (b'{"value": "v", "headers": [1]}', '"headers" must be an object'),
        (b'{"value": "v", "partition": "one"}', "\"partition\" must be an integer, not 'one'"),
        (b'{"value": "v", "timestamp": true}', '"timestamp" must be an integer, not True'),
        (b'{"value_base64": "%%"}', '"value_base64" is not valid base64'),
        (b'{"value_base64": 1}', '"value_base64" is not valid base64'),
    ],
)
def test_json_lines_that_are_no_record(line: bytes, reason: str) -> None:
    with pytest.raises(LineError, match=reason):
        read_json_line(line)


def test_plain_lines() -> None:
    assert read_text_line(b"a:b", None, None).value == b"a:b"
    record = read_text_line(b"k::v:w", b"::", None)
    assert (record.key, record.value) == (b"k", b"v:w")
    record = read_text_line(b"a=1,b=2\tk:v", b":", b"\t")
    assert (record.headers, record.key, record.value) == ((("a", b"1"), ("b", b"2")), b"k", b"v")
    assert read_text_line(b"\tv", None, b"\t").headers == ()


def test_plain_lines_that_lack_what_was_promised() -> None:
    with pytest.raises(LineError, match="no ':' between key and value"):
        read_text_line(b"v", b":", None)
    with pytest.raises(LineError, match="after the headers"):
        read_text_line(b"v", None, b"\t")
    with pytest.raises(LineError, match="'x' is not a header of the form name=value"):
        parse_headers("a=1,x")
