"""Ids, ports, directories and configs of a local cluster; what contradicts them is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.config import ConfigError
from ottla.broker.configs.broker_config import BROKER_CONFIG, load_config
from ottla.broker.configs.sources import Setting, collect_settings
from ottla.cli.local_cluster.plan import is_cluster, plan_cluster, refuse_other_data
from ottla.cli.main import run
from ottla.cli.session import CommandError


def given(*overrides: str) -> dict[str, Setting]:
    return collect_settings(None, overrides, {}, BROKER_CONFIG)


def test_every_broker_has_its_own_id_port_and_directory(tmp_path: Path) -> None:
    plan = plan_cluster(3, tmp_path, {})
    assert [broker.broker_id for broker in plan.brokers] == [1, 2, 3]
    assert plan.bootstrap == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    plan.write()
    configs = [load_config(tmp_path / f"broker-{number}.properties", [], {}) for number in (1, 2, 3)]
    assert [config["broker.id"] for config in configs] == [1, 2, 3]
    assert [config.log_dirs for config in configs] == [
        (tmp_path / f"broker-{number}" / "logs",) for number in (1, 2, 3)
    ]
    assert {str(config.zookeeper) for config in configs} == {plan.zookeeper.address}
    assert {config.without_effect for config in configs} == {()}


@pytest.mark.parametrize(("size", "replicas", "in_sync"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)])
def test_topics_have_up_to_three_replicas(size: int, replicas: int, in_sync: int, tmp_path: Path) -> None:
    plan_cluster(size, tmp_path, {}).write()
    config = load_config(tmp_path / "broker-1.properties", [], {})
    assert config["default.replication.factor"] == config["offsets.topic.replication.factor"] == replicas
    assert config["min.insync.replicas"] == in_sync


def test_given_configs_replace_the_defaults_of_a_cluster(tmp_path: Path) -> None:
    plan_cluster(3, tmp_path, given("min.insync.replicas=1", "num.partitions=7")).write()
    config = load_config(tmp_path / "broker-3.properties", [], {})
    assert (config["min.insync.replicas"], config["num.partitions"]) == (1, 7)


def test_each_broker_has_its_own_metrics_port(tmp_path: Path) -> None:
    plan_cluster(3, tmp_path, given("ottla.metrics.port=9464")).write()
    ports = [
        load_config(tmp_path / f"broker-{number}.properties", [], {})["ottla.metrics.port"] for number in (1, 2, 3)
    ]
    assert ports == [9464, 9465, 9466]


def test_host_and_port_move_all_listeners(tmp_path: Path) -> None:
    plan = plan_cluster(2, tmp_path, {}, host="::1", port=19000)
    assert plan.bootstrap == "[::1]:19000,[::1]:19001"
    assert [broker.bind for broker in plan.brokers] == [("::1", 19000), ("::1", 19001)]
    plan = plan_cluster(2, tmp_path, {}, port=0)
    assert [broker.bind for broker in plan.brokers] == [("127.0.0.1", 0)] * 2


def test_warnings_about_configs_are_told_once(tmp_path: Path) -> None:
    assert plan_cluster(3, tmp_path, {}).warnings == ()
    (warning,) = plan_cluster(3, tmp_path, given("num.io.threads=4")).warnings
    assert "num.io.threads" in warning
    (exposed,) = plan_cluster(3, tmp_path, {}, host="0.0.0.0").warnings
    assert "accepts connections from other machines" in exposed


def test_ports_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    plan_cluster(3, tmp_path, {}, port=65533)
    with pytest.raises(CommandError, match="choose a lower --port"):
        plan_cluster(3, tmp_path, {}, port=65534)


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("broker.id=7", "ids 1 to N"),
        ("node.id=7", "ids 1 to N"),
        ("listeners=PLAINTEXT://127.0.0.1:9092", "--host and --port"),
        ("advertised.listeners=PLAINTEXT://here:9092", "--host and --port"),
        ("zookeeper.connect=zk1:2181", "its own ZooKeeper"),
        ("log.dirs=/data", "--data-dir"),
        ("ottla.data.dir=/data", "--data-dir"),
    ],
)
def test_what_contradicts_the_plan_is_refused_with_its_source(setting: str, hint: str, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"# a comment\n{setting}\n")
    with pytest.raises(ConfigError, match="together with --brokers") as caught:
        plan_cluster(3, tmp_path, collect_settings(file, [], {}, BROKER_CONFIG))
    assert hint in str(caught.value)
    assert str(caught.value).endswith(f"(from {file}:2)")
    assert str(caught.value).startswith(f"{setting.partition('=')[0]}: ")


def test_a_wrong_config_is_refused_with_its_source(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"from --override num\.partitions"):
        plan_cluster(3, tmp_path, given("num.partitions=many"))


def test_the_data_of_a_single_broker_is_not_mixed_with_a_cluster(tmp_path: Path) -> None:
    refuse_other_data(tmp_path)
    assert not is_cluster(tmp_path)
    (tmp_path / "zookeeper.db").touch()
    with pytest.raises(CommandError, match="single broker"):
        refuse_other_data(tmp_path)


def test_a_cluster_is_not_started_as_a_single_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "zookeeper").mkdir()
    (tmp_path / "broker-1").mkdir()
    assert run(["start", "--data-dir", str(tmp_path)]) == 1
    assert "has the data of a cluster. Start it with --brokers" in capsys.readouterr().err


def test_brokers_that_are_left_out_are_known(tmp_path: Path) -> None:
    plan = plan_cluster(2, tmp_path, {})
    assert plan.left_out() == []
    for name in ("zookeeper", "broker-1", "broker-3", "broker-12", "broker-x"):
        (tmp_path / name).mkdir()
    (tmp_path / "broker-4").touch()
    assert plan.left_out() == [3, 12]
    assert is_cluster(tmp_path)
