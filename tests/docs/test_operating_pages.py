"""docs/operating: programs run, configs load, the unit starts what exists, and a backup brings everything back."""

from __future__ import annotations

import asyncio
import configparser
import re
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from docs.examples import examples_of, run
from ottla.broker.configs.broker_config import BROKER_CONFIG, load_config
from ottla.broker.configs.sources import settings_of_environment
from ottla.testing.broker import Broker
from support.brokers import Client, batch_of, broker_in_loop
from support.kafka_process import free_port

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs" / "operating").glob("*.md")), ROOT / "docs" / "migrating-from-kafka.md"]
DEPLOYING = (ROOT / "docs" / "operating" / "deploying.md").read_text("utf-8")
CLUSTER = (ROOT / "docs" / "operating" / "cluster.md").read_text("utf-8")
_CONFIG = (
    r"(?:ottla|log|broker|max|queued|connections|socket|num|group|auto|zookeeper|replica|unclean|leader|advertised"
    r"|default|offsets|inter|listener|control|controlled)\.[a-z.]+"
)


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def block(kind: str) -> str:
    (found,) = blocks(DEPLOYING, kind)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere_and_configs_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []
    named = set(re.findall(rf"`({_CONFIG})`", text))
    not_of_brokers = {
        "auto.offset.reset",
        "group.id",
        "leader.replication.throttled.rate",
        "zookeeper.db",
        "zookeeper.service",
    }
    attributes = {f"broker.{name}" for name in dir(Broker)} | {"ottla.testing.broker"}
    assert sorted(name for name in named - not_of_brokers - attributes if name not in BROKER_CONFIG) == []


@pytest.mark.parametrize("page", [page for page in PAGES if examples_of(page)], ids=lambda page: page.name)
def test_the_examples_of_a_page(page: Path, tmp_path: Path) -> None:
    port = free_port()
    with Broker({"ottla.zookeeper.port": port}) if page.name == "zookeeper.md" else nullcontext():
        for example in examples_of(page):
            place = tmp_path / f"line-{example.line}"
            place.mkdir()
            program = example.program.replace("127.0.0.1:2181", f"127.0.0.1:{port}")
            run(replace(example, program=program), "localhost:9092", place)


def test_the_file_of_the_page_loads_without_complaint(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(block("properties"))
    config = load_config(file, [], {})
    assert config.without_effect == ()
    assert str(config.tree_path) == "/var/lib/ottla/zookeeper.db"


def test_the_unit_starts_the_broker_with_that_file() -> None:
    unit = configparser.ConfigParser()
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(block("ini"))
    assert unit["Service"]["ExecStart"] == "/opt/ottla/bin/ottla start /etc/ottla/server.properties"
    assert unit["Service"]["StateDirectory"] == "ottla"  # which is /var/lib/ottla


def test_alerts_name_metrics_that_exist() -> None:
    documented = set(
        re.findall(r"^\| `(ottla_\w+)` \|", (ROOT / "docs" / "metrics.md").read_text("utf-8"), re.MULTILINE)
    )
    page = (ROOT / "docs" / "operating" / "alerts.md").read_text("utf-8")
    named = set(re.findall(r"\bottla_\w+", page))
    assert len(named) > 15
    assert named - documented == set()
    (rules,) = blocks(page, "yaml")
    expressions = [rule["expr"] for rule in yaml.safe_load(rules)["groups"][0]["rules"]]
    assert [expression for expression in expressions if f"`{expression}`" not in page] == []


def test_the_files_for_a_cluster_load_and_fit_together(tmp_path: Path) -> None:
    (properties,) = blocks(CLUSTER, "properties")
    file = tmp_path / "server.properties"
    file.write_text(properties)
    config = load_config(file, [], {})
    assert config.without_effect == ()
    (listeners,) = (text for text in blocks(CLUSTER, "") if text.startswith("listeners="))
    file.write_text(properties + listeners)
    assert load_config(file, [], {}).inter_broker_listener == "INTERNAL"
    units = []
    for text in blocks(CLUSTER, "ini"):
        unit = configparser.ConfigParser(comment_prefixes="#")
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read_string(text)
        units.append(unit)
    zookeeper, broker = units
    (server,) = (text for text in blocks(CLUSTER, "") if "tickTime" in text)
    assert "/etc/zookeeper/zoo.cfg" in server
    assert zookeeper["Service"]["ExecStart"].endswith("/etc/zookeeper/zoo.cfg")
    assert f"dataDir=/var/lib/{zookeeper['Service']['StateDirectory']}\n" in server
    assert f"/var/lib/{broker['Service']['StateDirectory']}/" in str(config.log_dirs[0])
    assert broker["Service"]["ExecStart"] == "/opt/ottla/bin/ottla start /etc/ottla/server.properties"


def test_the_variables_of_the_container_are_configs() -> None:
    variables = dict(re.findall(r"\b((?:KAFKA|OTTLA)_[A-Z_]+)=([^\s`]+)", DEPLOYING))
    assert len(variables) == 5
    assert len(list(settings_of_environment(variables, BROKER_CONFIG))) == len(variables)
    load_config(None, [], variables)


def test_a_backup_brings_topics_and_records_back_elsewhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with broker_in_loop(tmp_path / "broker", broker_id="-1") as broker:
            await Client(broker).create_topic("orders", retention_ms="1234567")
            partition = broker.replicas.get("orders", 0)
            assert partition is not None
            partition.append(bytearray(batch_of(b"a", b"b")), all_replicas=True)
            before = broker.broker_id, broker.metadata.cluster_id
        shutil.copytree(tmp_path / "broker", tmp_path / "restored")
        shutil.rmtree(tmp_path / "broker")
        async with broker_in_loop(tmp_path / "restored", broker_id="-1") as broker:
            assert (broker.broker_id, broker.metadata.cluster_id) == before
            partition = broker.replicas.get("orders", 0)
            assert partition is not None
            assert (partition.is_leader, partition.high_watermark) == (True, 2)
            assert broker.configs.topic_config("orders") == {"retention.ms": "1234567"}

    asyncio.run(work())
    assert not caplog.records
