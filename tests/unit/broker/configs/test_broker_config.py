"""A broker's config: its values, the rules between them, and where they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ottla.broker
from ottla.base.config import ConfigError
from ottla.broker.configs.broker_config import BROKER_CONFIG, WITHOUT_EFFECT, BrokerConfig, load_config
from ottla.broker.configs.cluster_settings import ClusterSettings
from ottla.broker.configs.listeners import own_host_name
from ottla.log.broker_config import BROKER_SCALED, BROKER_SYNONYMS
from ottla.zookeeper.client.connect_string import ConnectString

SHIPPED = """\
# What Kafka's own file looks like.
broker.id=7
num.network.threads=3
socket.request.max.bytes=104857600
log.dirs={logs}
num.partitions 4
log.retention.hours:24
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""


def refused(settings: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as raised:
        BrokerConfig(settings)
    return str(raised.value)


def test_without_settings_everything_has_its_default() -> None:
    config = BrokerConfig({})
    assert config.given == {}
    assert [key.name for key in BROKER_CONFIG if config[key.name] != key.default] == []
    assert [str(each) for each in config.listeners] == ["PLAINTEXT://:9092"]
    assert config.log_dirs == (Path.cwd() / "ottla-data" / "logs",)
    assert config.tree_path == Path.cwd() / "ottla-data" / "zookeeper.db"
    assert config.rack is None
    assert config.without_effect == ()


def test_a_value_has_its_type_and_the_text_is_kept() -> None:
    config = BrokerConfig({"num.partitions": " 3 ", "broker.rack": "a", "log.cleanup.policy": "compact,delete"})
    assert config["num.partitions"] == 3
    assert config["log.cleanup.policy"] == ("compact", "delete")
    assert config.rack == "a"
    assert config.given["num.partitions"] == " 3 "


def test_a_key_that_is_asked_for_by_a_wrong_name_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"did you mean num\.partitions\?"):
        BrokerConfig({})["num.partition"]


def test_passwords_are_not_printed() -> None:
    assert "hush" not in repr(BrokerConfig({"ssl.key.password": "hush"}))


# --- where things lie -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "logs", "tree"),
    [
        ({"ottla.data.dir": "/d"}, ["/d/logs"], "/d/zookeeper.db"),
        ({"log.dirs": "/a, /b"}, ["/a", "/b"], "/a/zookeeper.db"),
        ({"log.dir": "/a"}, ["/a"], "/a/zookeeper.db"),
        ({"log.dir": "/a", "log.dirs": "/b"}, ["/b"], "/b/zookeeper.db"),
        ({"log.dirs": "/a,/b", "ottla.data.dir": "/d"}, ["/a", "/b"], "/d/zookeeper.db"),
        ({"log.dirs": "/a,/b", "ottla.tree.file": "/t/tree.db"}, ["/a", "/b"], "/t/tree.db"),
    ],
)
def test_logs_and_tree_have_their_places(settings: dict[str, str], logs: list[str], tree: str) -> None:
    config = BrokerConfig(settings)
    assert [str(path) for path in config.log_dirs] == logs
    assert str(config.tree_path) == tree


def test_a_place_for_logs_that_is_none_is_refused() -> None:
    assert refused({"log.dirs": " , "}) == "log.dirs: it names no folder"
    assert refused({"log.dirs": "/a,/a"}) == "log.dirs: it names a folder twice"


# --- listeners ------------------------------------------------------------------------------------------------------


def test_listeners_are_advertised_as_they_are_unless_they_are_everywhere() -> None:
    config = BrokerConfig(
        {
            "listeners": "PLAINTEXT://127.0.0.1:9092,IN://0.0.0.0:9093",
            "listener.security.protocol.map": "IN:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }
    )
    assert [str(each) for each in config.advertised_listeners] == [
        "PLAINTEXT://127.0.0.1:9092",
        f"IN://{own_host_name()}:9093",
    ]


def test_what_is_advertised_can_be_set() -> None:
    config = BrokerConfig({"advertised.listeners": "PLAINTEXT://broker.example:19092"})
    assert [str(each) for each in config.advertised_listeners] == ["PLAINTEXT://broker.example:19092"]
    assert [str(each) for each in config.listeners] == ["PLAINTEXT://:9092"]


def test_brokers_use_the_listener_that_is_named() -> None:
    settings = {
        "listeners": "IN://127.0.0.1:1,OUT://127.0.0.1:2",
        "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
        "inter.broker.listener.name": "out",
    }
    assert BrokerConfig(settings).inter_broker_listener == "OUT"
    assert BrokerConfig({}).inter_broker_listener == "PLAINTEXT"


def test_requests_of_the_controller_can_have_a_listener_of_their_own() -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:1,CONTROL://127.0.0.1:2",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
        "control.plane.listener.name": "control",
    }
    assert BrokerConfig(settings).control_plane_listener == "CONTROL"
    assert BrokerConfig({}).control_plane_listener is None


def test_zookeeper_is_where_it_is_said_to_be() -> None:
    config = BrokerConfig({"zookeeper.connect": "a:1, b,[::1]:3/kafka/east"})
    assert config.zookeeper == ConnectString((("a", 1), ("b", 2181), ("::1", 3)), "/kafka/east")
    assert config.without_effect == ()
    assert BrokerConfig({}).zookeeper is None
    assert BrokerConfig({"zookeeper.connect": ""}).zookeeper is None


def test_the_connection_has_as_long_as_a_session_unless_told_otherwise() -> None:
    assert ClusterSettings.of(BrokerConfig({})).zookeeper_connect_timeout_ms == 18_000
    longer = {"zookeeper.session.timeout.ms": "6000", "zookeeper.connection.timeout.ms": "30000"}
    settings = ClusterSettings.of(BrokerConfig(longer))
    assert (settings.session_timeout_ms, settings.zookeeper_connect_timeout_ms) == (6000, 30_000)


def test_consumers_may_read_in_their_own_rack() -> None:
    package = "org.apache.kafka.common.replica"
    by_class = {
        name: BrokerConfig({"replica.selector.class": name}).selects_replicas_by_rack
        for name in ("", f"{package}.LeaderSelector", f"{package}.RackAwareReplicaSelector")
    }
    assert list(by_class.values()) == [False, False, True]
    assert not BrokerConfig({}).selects_replicas_by_rack


def test_a_file_for_kafka_s_own_quorum_of_one_serves_without_the_quorum() -> None:
    config = BrokerConfig(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@localhost:9093",
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
            "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
        }
    )
    assert [each.name for each in config.listeners] == ["PLAINTEXT"]
    assert [each.name for each in config.advertised_listeners] == ["PLAINTEXT"]
    assert config["broker.id"] == 1
    assert "process.roles" in config.without_effect


def test_limits_of_addresses() -> None:
    config = BrokerConfig({"max.connections.per.ip.overrides": "127.0.0.1:5, ::1:6"})
    assert config.connection_limits == {"127.0.0.1": 5, "::1": 6}


# --- rules ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"num.partitions": "0"}, "num.partitions: 0 is less than 1"),
        ({"num.partition": "1"}, "num.partition: there is no such broker config; did you mean num.partitions?"),
        ({"broker.id": "1", "node.id": "2"}, "node.id: 2 is not the broker.id, which is 1"),
        ({"broker.id": "1001"}, "broker.id: 1001 is not between -1 and reserved.broker.max.id, 1000"),
        (
            {"broker.id.generation.enable": "false"},
            "broker.id: it must be set, as broker.id.generation.enable is false",
        ),
        ({"log.retention.minutes": "0"}, "log.retention.minutes: 0 would keep nothing"),
        ({"log.roll.ms": "0"}, "log.roll.ms: 0 is less than 1"),
        ({"log.cleaner.threads": "0"}, "log.cleaner.threads: it must be 1 or more"),
        ({"queued.max.request.bytes": "5"}, "queued.max.request.bytes: 5 is less than socket.request.max.bytes"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip: 0 lets nobody in"),
        ({"connections.max.idle.ms": "100"}, "connections.max.idle.ms: 100 is not more than connection.failed"),
        ({"replica.fetch.wait.max.ms": "30001"}, "replica.fetch.wait.max.ms: 30001 is more than replica.socket"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "advertised.listeners: no client can reach 0.0.0.0"),
        ({"advertised.listeners": "SSL://a:1"}, "advertised.listeners: SSL is not among the listeners"),
        ({"inter.broker.listener.name": "X"}, "inter.broker.listener.name: X is not in listener.security.protocol.map"),
        ({"control.plane.listener.name": "X"}, "control.plane.listener.name: X is not in listener.security.protocol"),
        ({"control.plane.listener.name": "SSL"}, "control.plane.listener.name: SSL is not an advertised listener"),
        ({"control.plane.listener.name": "PLAINTEXT"}, "control.plane.listener.name: PLAINTEXT is the listener for"),
        ({"zookeeper.connect": "zoo:x"}, "zookeeper.connect: 'zoo:x': 'zoo:x' is not the address of a ZooKeeper"),
        ({"zookeeper.connect": "/only"}, "zookeeper.connect: '/only' names no ZooKeeper server"),
        ({"controller.listener.names": "X"}, "controller.listener.names: it must be empty where process.roles is"),
        ({"process.roles": "controller"}, "process.roles: there is no controller apart from a broker"),
        ({"max.connections.per.ip.overrides": "a"}, "max.connections.per.ip.overrides: 'a' is not address:connections"),
        (
            {"log.cleaner.min.compaction.lag.ms": "5", "log.cleaner.max.compaction.lag.ms": "4"},
            "min.compaction.lag.ms: 5 is more than max.compaction.lag.ms, which is 4",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(settings: dict[str, str], reason: str) -> None:
    assert refused(settings).startswith(reason)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"zookeeper.connect": "zoo:2181", "zookeeper.ssl.client.enable": "true"},
            "zookeeper.ssl.client.enable: it is",
        ),
        ({"zookeeper.connect": "zoo:2181", "zookeeper.set.acl": "true"}, "zookeeper.set.acl: it is not supported"),
        (
            {"zookeeper.connect": "zoo", "process.roles": "broker,controller"},
            "process.roles: a broker uses ZooKeeper or a quorum",
        ),
        (
            {"inter.broker.protocol.version": "2.8-IV1"},
            "inter.broker.protocol.version: brokers older than 3.0 cannot be in one cluster with this one, and 2.8-IV1",
        ),
        ({"inter.broker.protocol.version": "0.11.0"}, "inter.broker.protocol.version: brokers older than 3.0"),
        (
            {"replica.selector.class": "com.example.Mine"},
            "replica.selector.class: 'com.example.Mine' is not org.apache",
        ),
        (
            {"remote.log.storage.system.enable": "true"},
            "remote.log.storage.system.enable: tiered storage is not supported",
        ),
        ({"authorizer.class.name": "kafka.security"}, "authorizer.class.name: authorizers are not supported yet"),
        ({"process.roles": "broker"}, "process.roles: a quorum elsewhere cannot be joined"),
        (
            {"process.roles": "broker,controller", "controller.quorum.voters": "1@a:1,2@b:1"},
            "controller.quorum.voters: a quorum of several cannot be joined",
        ),
        (
            {"listeners": "SSL://:9093", "security.inter.broker.protocol": "SSL"},
            "listeners: listener SSL uses SSL, which is not supported yet: use PLAINTEXT",
        ),
        ({"listeners": "SSL://:9093"}, "listeners: listener SSL uses SSL, which is not supported yet"),
        (
            {
                "listeners": "PLAINTEXT://:9092,OUT://:9093",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUT:SASL_SSL",
            },
            "listeners: listener OUT uses SASL_SSL, which is not supported yet",
        ),
    ],
)
def test_unsupported_features_are_refused(settings: dict[str, str], reason: str) -> None:
    assert refused(settings).startswith(reason)


def test_keys_without_effect_are_accepted_checked_and_told() -> None:
    config = BrokerConfig({"num.io.threads": "16", "listener.name.x.ssl.key.password": "p", "super.users": "User:a"})
    assert config.without_effect == ("listener.name.x.ssl.key.password", "num.io.threads", "super.users")
    assert refused({"num.io.threads": "none"}) == "num.io.threads: 'none' is not a whole number"
    assert {key.name for key in BROKER_CONFIG} >= WITHOUT_EFFECT


def test_keys_that_are_read_have_an_effect_and_no_others() -> None:
    """A key stands in quotes where it is read. Those of logs are read by way of the topic's keys."""
    room = Path(ottla.broker.__file__).parents[1]
    declared = (
        *room.glob("broker/configs/keys/*"),
        room / "broker/configs/broker_config.py",
        room / "log" / "broker_config.py",
    )
    not_of_brokers = room / "client", room / "spark", room / "testing", room / "cli"
    others = (
        path
        for path in room.rglob("*.py")
        if path not in declared and not any(path.is_relative_to(one) for one in not_of_brokers)
    )
    text = "".join(path.read_text() for path in others)
    read = {key.name for key in BROKER_CONFIG if f'"{key.name}"' in text}
    of_logs = {*BROKER_SYNONYMS.values(), *(name for names in BROKER_SCALED.values() for name, _ in names)}
    by_the_config_itself = {
        "authorizer.class.name",
        "broker.id.generation.enable",
        "broker.rack",
        "control.plane.listener.name",
        "inter.broker.listener.name",
        "inter.broker.protocol.version",
        "log.dir",
        "log.dirs",
        "max.connections.per.ip.overrides",
        "ottla.data.dir",
        "ottla.tree.file",
        "replica.selector.class",
        "security.inter.broker.protocol",
    }
    only_checked = {"background.threads", "num.io.threads", "num.network.threads"}
    in_force = {key.name for key in BROKER_CONFIG} - WITHOUT_EFFECT
    assert in_force - read - of_logs == by_the_config_itself
    assert (read & WITHOUT_EFFECT) - of_logs == only_checked


# --- where settings come from ---------------------------------------------------------------------------------------


def test_a_file_of_kafka_loads(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(SHIPPED.format(logs=tmp_path / "logs"))
    config = load_config(file, [], {})
    assert config["broker.id"] == 7
    assert config["num.partitions"] == 4
    assert config["log.retention.hours"] == 24
    assert config.log_dirs == (tmp_path / "logs",)
    assert config["group.initial.rebalance.delay.ms"] == 0
    assert config.without_effect == ("num.network.threads",)


def test_the_environment_overrides_the_file_and_the_command_line_both(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\ndefault.replication.factor=2\nbroker.rack=file\n")
    environ = {"KAFKA_DEFAULT_REPLICATION_FACTOR": "3", "KAFKA_BROKER_RACK": "variable"}
    config = load_config(file, ["broker.rack=a=b"], environ)
    assert (config["num.partitions"], config["default.replication.factor"], config.rack) == (2, 3, "a=b")


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_NUM_PARTITIONS", "num.partitions"),
        ("KAFKA_ZOOKEEPER_CLIENTCNXNSOCKET", "zookeeper.clientCnxnSocket"),
        ("KAFKA_LISTENER_NAME_IN__SIDE___A_SSL_KEY_PASSWORD", "listener.name.in_side-a.ssl.key.password"),
        ("OTTLA_METRICS_PORT", "ottla.metrics.port"),
    ],
)
def test_a_variable_names_a_key(variable: str, key: str) -> None:
    assert load_config(None, [], {variable: "1"}).given == {key: "1"}


@pytest.mark.parametrize(
    "variable",
    [
        "KAFKA_HEAP_OPTS",
        "KAFKA_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_CLUSTER_ID",
        "KAFKA_HOME",
        "KAFKA_PORT",
        "KAFKA_PORT_9092_TCP_ADDR",
        "KAFKA_SERVICE_HOST",
        "KAFKA_BOOTSTRAP_SERVERS",
        "KAFKA",
        "KAFKA_",
        "KAFKAESQUE_NUM_PARTITIONS",
        "OTTLA_SEED",
        "NUM_PARTITIONS",
    ],
)
def test_other_variables_are_skipped(variable: str) -> None:
    assert load_config(None, [], {variable: "x"}).given == {}


def test_a_wrong_value_is_reported_with_its_source(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# first\nnum.partitions=\\\nmany\n")
    with pytest.raises(ConfigError, match=rf"'many' is not a whole number \(from {file}:2\)"):
        load_config(file, [], {})
    with pytest.raises(ConfigError, match=r"num\.partitions\? \(from the variable KAFKA_NUM_PARTITION\)"):
        load_config(None, [], {"KAFKA_NUM_PARTITION": "1"})
    with pytest.raises(ConfigError, match=r"^num\.partitions: 0 is less than 1 \(from --override num\.partitions\)"):
        load_config(None, ["num.partitions=0"], {"KAFKA_NUM_PARTITIONS": "2"})


def test_a_file_that_cannot_be_read_and_an_override_without_value_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.properties: the file cannot be read: No such file"):
        load_config(tmp_path / "none.properties", [], {})
    with pytest.raises(ConfigError, match="--verbose: it is not key=value"):
        load_config(None, ["--verbose"], {})
    broken = tmp_path / "broken.properties"
    broken.write_text("a=1\nb=\\u1\n")
    with pytest.raises(ConfigError, match=r"broken\.properties:2: .u needs four"):
        load_config(broken, [], {})


def test_a_file_in_java_s_own_charset_loads(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes("broker.rack=Zürich".encode("latin-1"))
    assert load_config(file, [], {}).rack == "Zürich"


def test_a_config_can_be_changed_into_another() -> None:
    config = BrokerConfig({"num.partitions": "2"})
    changed = config.changed({"message.max.bytes": "5"})
    assert (changed["num.partitions"], changed["message.max.bytes"]) == (2, 5)
    assert config["message.max.bytes"] == 1_048_588


# --- `ottla start` ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "environ", "options", "listeners"),
    [
        (None, {}, {}, "PLAINTEXT://127.0.0.1:9092"),
        (None, {}, {"port": 19092}, "PLAINTEXT://127.0.0.1:19092"),
        (None, {}, {"host": "0.0.0.0"}, "PLAINTEXT://0.0.0.0:9092"),
        (None, {}, {"host": "::1", "port": 0}, "PLAINTEXT://[::1]:0"),
        (None, {"KAFKA_LISTENERS": "PLAINTEXT://:1"}, {}, "PLAINTEXT://:1"),
        (None, {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://h:1"}, {}, "PLAINTEXT://:9092"),
        ("num.partitions=3", {}, {}, "PLAINTEXT://:9092"),  # a file means what it means to Kafka
        ("num.partitions=3", {}, {"port": 5}, "PLAINTEXT://:5"),
        ("listeners=PLAINTEXT://127.0.0.2:7", {}, {"port": 8}, "PLAINTEXT://127.0.0.2:8"),
        ("listeners=PLAINTEXT://127.0.0.2:7", {}, {"host": "10.0.0.1"}, "PLAINTEXT://10.0.0.1:7"),
        ("listeners=PLAINTEXT://[::1]:7", {}, {"port": 8}, "PLAINTEXT://[::1]:8"),
    ],
)
def test_where_a_started_broker_listens(
    lines: str | None, environ: dict[str, str], options: dict[str, Any], listeners: str, tmp_path: Path
) -> None:
    file = None
    if lines is not None:
        file = tmp_path / "server.properties"
        file.write_text(lines)
    config = load_config(file, [], environ, is_private=True, **options)
    assert ",".join(map(str, config.listeners)) == listeners


def test_options_of_the_command_leave_the_quorum_s_listeners_alone(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
    )
    config = load_config(file, [], {}, port=1)
    assert config["listeners"] == "PLAINTEXT://:1,CONTROLLER://:9093"


def test_options_of_the_command_do_not_guess_which_listener_is_meant() -> None:
    two = "listeners=A://127.0.0.1:1,B://127.0.0.1:2"
    protocols = "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"
    with pytest.raises(ConfigError, match=r"--port: the configuration has 2 listeners .* change 'listeners' instead"):
        load_config(None, [two, protocols], {}, port=3)
