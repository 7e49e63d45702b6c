"""Every example of docs/client runs against a broker and prints what the page says."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import pytest

import ottla
from docs.examples import examples_of, run
from ottla.client import errors
from ottla.client.produce import delivery
from support.clients.peers import running_peer
from support.kafka_process import free_port

with warnings.catch_warnings():
    # It reads its message definitions by functions that Python 3.11 calls deprecated.
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
    import kafka

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "client").glob("*.md"))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("page", [page for page in PAGES if examples_of(page)], ids=lambda page: page.name)
def test_the_examples_of_a_page(page: Path, tmp_path: Path) -> None:
    """In their order, since they build on each other's topics, with a broker for themselves."""
    zookeeper = free_port()
    with running_peer(tmp_path / "broker", {"ottla.zookeeper.port": str(zookeeper)}) as broker:
        for example in examples_of(page):
            place = tmp_path / f"line-{example.line}"
            place.mkdir()
            program = example.program.replace("localhost:2181", f"127.0.0.1:{zookeeper}")
            run(replace(example, program=program), broker.bootstrap, place)


def test_there_are_pages() -> None:
    assert "README.md" in [page.name for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_error_is_on_its_page() -> None:
    page = (ROOT / "docs" / "client" / "errors.md").read_text("utf-8")
    named = [name for name in errors.__all__ if isinstance(getattr(errors, name), type) and name != "ClientError"]
    assert [name for name in (*named, "SomeRefusedError") if f"`{name}`" not in page] == []


CALL = re.compile(r"\b(?P<owner>[A-Z]\w+)\.(?P<name>[a-z_]+)")


def test_every_call_of_the_page_of_moving_exists() -> None:
    """The names of its tables: those on the left in the other client, those on the right in ours."""
    page = (ROOT / "docs" / "client" / "moving.md").read_text("utf-8")
    ours: list[Any] = [ottla, delivery]
    theirs: list[Any] = []
    for line in page.splitlines():
        if line.startswith("## From "):
            theirs = {"confluent": [confluent_kafka, confluent_kafka.admin], "kafka": [kafka], "aiokafka": [aiokafka]}[
                re.split("[- ]", line)[2]
            ]
        if not line.startswith("| ") or not theirs:
            continue
        left, right = line.strip("| ").split(" | ")
        for cell, homes in ((left, theirs), (right, ours)):
            for call in CALL.finditer(cell):
                owner = next((getattr(home, call["owner"]) for home in homes if hasattr(home, call["owner"])), None)
                assert hasattr(owner, call["name"]), call[0]
