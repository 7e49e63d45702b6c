"""Frames that real clients and brokers sent to each other: read and written again (see tests/golden/README.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.wire.framing import SIZE_BYTES, api_of, read_request, read_response, request_frame, response_frame

GOLDEN = Path(__file__).parents[2] / "golden" / "frames"
EXCHANGES: list[dict[str, Any]] = json.loads((GOLDEN / "manifest.json").read_text(encoding="utf-8"))

each_exchange = pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange["exchange"])


def frame(exchange: dict[str, Any], kind: str) -> bytes:
    return GOLDEN.joinpath(f"{exchange['exchange']}.{kind}.bin").read_bytes()


def test_every_file_is_in_the_manifest() -> None:
    named = {f"{exchange['exchange']}.{kind}.bin" for exchange in EXCHANGES for kind in ("request", "response")}
    assert {path.name for path in GOLDEN.glob("*.bin")} == named


@each_exchange
def test_request_comes_back_byte_for_byte(exchange: dict[str, Any]) -> None:
    data = frame(exchange, "request")
    api, header, request = read_request(data)
    assert (api.key, header.request_api_version) == (exchange["api_key"], exchange["version"])
    written = b"".join(request_frame(request, exchange["version"], header.correlation_id, header.client_id))
    assert written[SIZE_BYTES:] == data


@each_exchange
def test_response_comes_back_byte_for_byte(exchange: dict[str, Any]) -> None:
    data = frame(exchange, "response")
    correlation_id, response = read_response(api_of(exchange["api_key"]), exchange["version"], data)
    assert correlation_id == read_request(frame(exchange, "request")).header.correlation_id
    written = b"".join(response_frame(response, exchange["version"], correlation_id))
    assert written[SIZE_BYTES:] == data
