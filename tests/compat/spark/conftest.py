"""One Spark with both connectors for all tests below here, which run in one worker; brokers, one after the other."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat.spark.both_connectors import Spark, running_spark
from compat.spark.sides import BOTH, Side, on
from support.clients.peers import running_peer

SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": "100",  # compacts at once what it may
}


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.compat)
            item.add_marker(pytest.mark.xdist_group("spark with both connectors"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    with running_spark(tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of the broker that the test asks for by name; ours, if it asks for none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTTLA_TEST_PEER", getattr(request, "param", "ottla"))
        with running_peer(tmp_path_factory.mktemp("broker"), SETTINGS) as peer:
            yield peer.bootstrap


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for a `side` runs with both connectors on our broker, unless it says `on` which."""
    own = any("connector" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "side" in metafunc.fixturenames and not own:
        both = on(*BOTH).mark
        metafunc.parametrize(*both.args, **both.kwargs)


@pytest.fixture
def side(bootstrap: str, connector: str, spark: Spark) -> Side:
    return Side(connector, bootstrap, spark)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses, and that says where it comes from."""
    origin = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)
    return f"{origin[:80]}-{uuid.uuid4().hex[:8]}"
