"""Configuration keys: what they accept, and what they say when they do not."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.config import ConfigError, ConfigKey, ConfigSchema, ValueType, at_least, between, each_of, one_of

SCHEMA = ConfigSchema(
    "topic",
    [
        ConfigKey("retention.ms", ValueType.LONG, 7, "…", at_least(-1)),
        ConfigKey("segment.bytes", ValueType.INT, 1024, "…", at_least(14)),
        ConfigKey("ratio", ValueType.DOUBLE, 0.5, "…", between(0, 1)),
        ConfigKey("preallocate", ValueType.BOOLEAN, False, "…"),
        ConfigKey("policy", ValueType.LIST, ("delete",), "…", each_of("delete", "compact")),
        ConfigKey("type", ValueType.STRING, "CreateTime", "…", one_of("CreateTime", "LogAppendTime")),
        ConfigKey("secret", ValueType.PASSWORD, None, "…"),
        ConfigKey("builder", ValueType.CLASS, None, "…"),
        ConfigKey("rate", ValueType.DOUBLE, 1e308, "…"),
    ],
)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("retention.ms", " -1 ", -1),
        ("ratio", "0.25", 0.25),
        ("preallocate", "TRUE", True),
        ("policy", "compact, delete", ("compact", "delete")),
        ("policy", "", ()),
        ("type", "LogAppendTime", "LogAppendTime"),
        ("secret", "hush", "hush"),
        ("builder", "org.example.Builder", "org.example.Builder"),
    ],
)
def test_a_text_becomes_its_value_and_back(key: str, text: str, value: Any) -> None:
    assert SCHEMA.parse({key: text})[key] == value
    assert SCHEMA[key].parse(SCHEMA[key].text(value)) == value


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("retention.ms", "soon", "retention.ms: 'soon' is not a whole number"),
        ("retention.ms", "-2", "retention.ms: -2 is less than -1"),
        ("retention.ms", str(2**63), f"retention.ms: {2**63} does not fit a long"),
        ("segment.bytes", str(2**31), f"segment.bytes: {2**31} does not fit a int"),
        ("ratio", "2", "ratio: 2.0 is not between 0 and 1"),
        ("ratio", "half", "ratio: 'half' is not a number"),
        ("ratio", "0_1", "ratio: '0_1' is not a number"),
        ("retention.ms", "1_000", "retention.ms: '1_000' is not a whole number"),
        ("preallocate", "yes", "preallocate: 'yes' is neither true nor false"),
        ("policy", "delete,shred", "policy: 'shred' is not one of delete, compact"),
        ("type", "createtime", "type: 'createtime' is not one of CreateTime, LogAppendTime"),
        ("retention.sm", "1", "retention.sm: there is no such topic config; did you mean retention.ms?"),
        ("colour", "red", "colour: there is no such topic config"),
    ],
)
def test_errors_have_a_message(key: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as raised:
        SCHEMA.parse({key: text})
    assert str(raised.value) == reason
    assert raised.value.key == key


def test_what_is_not_given_is_the_default() -> None:
    assert SCHEMA.parse({}) == {key.name: key.default for key in SCHEMA}


def test_a_key_tells_whether_it_accepts_a_text() -> None:
    assert SCHEMA["retention.ms"].accepts("-1")
    assert not SCHEMA["retention.ms"].accepts("-2")


def test_a_key_says_what_it_allows() -> None:
    assert [SCHEMA[name].allowed for name in ("retention.ms", "ratio", "policy", "type", "secret")] == [
        "-1 or more",
        "0 to 1",
        "any of delete, compact",
        "CreateTime, LogAppendTime",
        "",
    ]


def test_passwords_are_not_to_be_shown() -> None:
    assert [key.name for key in SCHEMA if key.is_sensitive] == ["secret"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (0.5, "0.5"),
        (123456.0, "123456.0"),
        (1e7, "1.0E7"),
        (-12345678.9, "-1.23456789E7"),
        (0.0005, "5.0E-4"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_a_number_is_written_as_java_does(value: float, text: str) -> None:
    assert SCHEMA["rate"].text(value) == text


def test_the_nearest_key_must_be_as_near_as_asked() -> None:
    assert SCHEMA.nearest("segment.byte", 0.9) == "segment.bytes"
    assert SCHEMA.nearest("bytes.of.a.segment", 0.9) is None
