"""Every example of docs/spark runs in the session of the tests, and prints what its page says.

The examples of a page are one program in parts. Places for checkpoints are put below a folder of the test.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from docs.examples import ADDRESS, ANYTHING, Example, examples_of
from ottla.spark.pipelines.yaml_spec import read_spec
from support.clients.peers import Peer, running_peer

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "spark").glob("*.md"))
CHECKPOINTS = "checkpoints/"


@contextmanager
def broker_of_its_own(place: Path) -> Iterator[Peer]:
    """Pages share names of topics."""
    with running_peer(place, {"auto.create.topics.enable": "true"}) as peer:
        yield peer


def printed_by(example: Example, bootstrap: str, place: Path, names: dict[str, Any]) -> str:
    program = example.program.replace(ADDRESS, bootstrap).replace(CHECKPOINTS, f"{place}/")
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(program, example.place, "exec"), names)
    return printed.getvalue().replace(bootstrap, ADDRESS)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("page", [page for page in PAGES if examples_of(page)], ids=lambda page: page.name)
def test_the_examples_of_a_page(page: Path, spark: SparkSession, tmp_path: Path) -> None:
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    names: dict[str, Any] = {"__name__": "example"}
    with broker_of_its_own(tmp_path / "broker") as broker:
        for example in examples_of(page):
            printed = printed_by(example, broker.bootstrap, tmp_path / "checkpoints", names)
            if example.prints is not None:
                said = ".*".join(map(re.escape, example.prints.rstrip().split(ANYTHING)))
                assert re.fullmatch(said, printed.rstrip()), f"{example.place} prints\n{printed}"
    assert spark.conf.get("spark.sql.shuffle.partitions") == partitions


def test_the_yaml_of_the_page_is_right(tmp_path: Path) -> None:
    (block,) = re.findall(
        r"^```yaml\n(.*?)^```$", (ROOT / "docs/spark/pipelines.md").read_text(), re.MULTILINE | re.DOTALL
    )
    file = tmp_path / "page.yaml"
    file.write_text(block)
    spec = read_spec(file)
    assert [sink.view for sink in spec.sinks] == ["by_city", "dear"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []
