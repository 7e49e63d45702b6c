from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator

import pytest

from ottla.broker.observability.logging_setup import ThrottledLog, configure
from ottla.testing.manual_clock import ManualClock

LOGGER = logging.getLogger("ottla.broker.test_of_logging")


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("ottla")
    handlers, levels = list(root.handlers), (root.level, ours.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def test_a_line_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    configure()
    LOGGER.info("topic %s is there", "orders", extra={"partitions": 3, "client": "my client", "note": ""})
    (line,) = lines(capsys)
    moment, rest = line[:23], line[23:]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", moment)
    assert rest == ' INFO    topic orders is there partitions=3 client="my client" note=""'


def test_logger_names_are_shown_only_for_debugging(capsys: pytest.CaptureFixture[str]) -> None:
    configure(level="debug")
    LOGGER.debug("low")
    LOGGER.info("high")
    low, high = lines(capsys)
    assert low.endswith("DEBUG   [ottla.broker.test_of_logging] low")
    assert high.endswith("INFO    high")


def test_a_line_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    configure("json")
    LOGGER.warning("no room on %s", "/data", extra={"free": 12, "path": "/data", "level": "mine"})
    content = json.loads(lines(capsys)[0])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", content.pop("time"))
    assert content == {
        "level": "WARNING",
        "logger": "ottla.broker.test_of_logging",
        "message": "no room on /data",
        "free": 12,
        "path": "/data",
    }


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_went_wrong_is_shown(capsys: pytest.CaptureFixture[str], form: str) -> None:
    configure(form)
    try:
        raise ValueError("the reason")
    except ValueError:
        LOGGER.exception("it failed")
    written = lines(capsys)
    text = json.loads(written[0])["exception"] if form == "json" else "\n".join(written)
    assert "Traceback" in text
    assert "ValueError: the reason" in text


@pytest.mark.parametrize("form", ["text", "json"])
def test_nobody_outside_can_begin_a_line(capsys: pytest.CaptureFixture[str], form: str) -> None:
    configure(form)
    LOGGER.info("client %s", "a\n2026 ERROR b\r\x1b[2J\u2028", extra={"id": "c\nd"})
    written = lines(capsys)
    assert len(written) == 1
    assert "\x1b" not in written[0]


def test_levels(capsys: pytest.CaptureFixture[str]) -> None:
    configure(level="info")
    LOGGER.debug("ours, too low")
    logging.getLogger("other").info("theirs, too low")
    LOGGER.info("ours")
    logging.getLogger("other").warning("theirs")
    assert [line.split()[-1] for line in lines(capsys)] == ["ours", "theirs"]


def test_the_last_word_counts(capsys: pytest.CaptureFixture[str]) -> None:
    configure("json", "debug")
    configure("text", "ERROR")
    LOGGER.warning("too low")
    LOGGER.error("once")
    (line,) = lines(capsys)
    assert line.endswith("ERROR   once")


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'xml'.*text and json"):
        configure("xml")
    with pytest.raises(ValueError, match=r"'loud'.*debug, info"):
        configure("text", "loud")


# Complaints that others can cause


def throttled(caplog: pytest.LogCaptureFixture, **options: int) -> tuple[ThrottledLog, ManualClock]:
    caplog.set_level(logging.WARNING, LOGGER.name)
    clock = ManualClock()
    return ThrottledLog(LOGGER, clock, interval_s=10, **options), clock


def test_the_same_complaint_is_written_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    log, clock = throttled(caplog)
    for _ in range(4):
        log.warning("1.2.3.4", "bad frame from %s", "1.2.3.4", extra={"port": 1})
    assert caplog.messages == ["bad frame from 1.2.3.4"]
    assert vars(caplog.records[0])["port"] == 1
    clock.advance_ms(9_999)
    log.warning("1.2.3.4", "bad frame from %s", "1.2.3.4")
    assert len(caplog.messages) == 1
    clock.advance_ms(1)
    log.warning("1.2.3.4", "bad frame from %s", "1.2.3.4")
    assert caplog.messages[1:] == ["bad frame from 1.2.3.4 (and 4 more like it before)"]
    clock.advance_ms(10_000)
    log.warning("1.2.3.4", "bad frame from %s", "1.2.3.4")
    assert caplog.messages[2:] == ["bad frame from 1.2.3.4"]


def test_each_has_its_own_turn(caplog: pytest.LogCaptureFixture) -> None:
    log, _ = throttled(caplog)
    for address in ("a", "b", "a"):
        log.warning(address, "bad frame from %s", address)
    assert caplog.messages == ["bad frame from a", "bad frame from b"]


def test_too_many_share_a_turn(caplog: pytest.LogCaptureFixture) -> None:
    log, clock = throttled(caplog, max_keys=2)
    for address in "abcde":
        log.warning(address, "bad frame from %s", address)
    assert caplog.messages == ["bad frame from a", "bad frame from b", "bad frame from c"]
    clock.advance_ms(10_000)
    caplog.clear()
    log.warning("f", "bad frame from %s", "f")
    assert caplog.messages == ["bad frame from f"]
