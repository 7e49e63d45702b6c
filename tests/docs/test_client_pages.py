"""Every example of docs/client runs against a broker and prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clients.peers import running_peer
from docs.examples import examples_of, run

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "client").glob("*.md"))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("page", [page for page in PAGES if examples_of(page)], ids=lambda page: page.name)
def test_the_examples_of_a_page(page: Path, tmp_path: Path) -> None:
    """In their order, since they build on each other's topics, with a broker for themselves."""
    with running_peer(tmp_path / "broker", {}) as broker:
        for example in examples_of(page):
            place = tmp_path / f"line-{example.line}"
            place.mkdir()
            run(example, broker.bootstrap, place)


def test_there_are_pages() -> None:
    assert "README.md" in [page.name for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []
