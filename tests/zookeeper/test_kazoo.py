"""kazoo, which knows nothing of us, works with the embedded server: its calls, and its recipes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.protocol.states import EventType, WatchedEvent
from kazoo.security import make_digest_acl

from support.trees.server_process import server_process


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_process(tmp_path_factory.mktemp("zookeeper")) as address:
        yield address


@pytest.fixture
def clients(address: str, request: pytest.FixtureRequest) -> Iterator[tuple[KazooClient, KazooClient]]:
    """Two, below a node of their own."""
    root = f"/{request.node.name}"
    pair = KazooClient(hosts=address), KazooClient(hosts=address)
    for client in pair:
        client.start(timeout=30)
    pair[0].ensure_path(root)
    for client in pair:
        client.chroot = root
    yield pair
    for client in pair:
        client.stop()
        client.close()


Clients = tuple[KazooClient, KazooClient]


def test_nodes(clients: Clients) -> None:
    client = clients[0]
    assert client.create("/a", b"data") == "/a"
    path, stat = client.create("/b", b"x", include_data=True)
    assert (path, stat.version, stat.dataLength) == ("/b", 0, 1)
    assert client.set("/a", b"more").version == 1
    data, stat = client.get("/a")
    assert (data, stat.version, stat.numChildren, stat.ephemeralOwner) == (b"more", 1, 0, 0)
    assert client.create("/seq-", sequence=True) == "/seq-0000000002"
    assert sorted(client.get_children("/")) == ["a", "b", "seq-0000000002"]
    assert client.exists("/nothing") is None
    with pytest.raises(exceptions.NodeExistsError):
        client.create("/a")
    with pytest.raises(exceptions.BadVersionError):
        client.set("/a", b"", version=7)
    with pytest.raises(exceptions.NoNodeError):
        client.get("/nothing")
    client.create("/a/child", ephemeral=True)
    with pytest.raises(exceptions.NotEmptyError):
        client.delete("/a")
    with pytest.raises(exceptions.NoChildrenForEphemeralsError):
        client.create("/a/child/below")
    client.delete("/a", recursive=True)
    assert client.sync("/") == "/"
    assert client.server_version() == (3, 9, 0)


def test_a_transaction_tells_which_operation_failed(clients: Clients) -> None:
    client = clients[0]
    transaction = client.transaction()
    transaction.create("/a", b"1")
    transaction.set_data("/a", b"2")
    transaction.check("/a", 1)
    transaction.create("/n", sequence=True)
    transaction.delete("/a")
    made, changed, checked, sequential, deleted = transaction.commit()
    assert (made, changed.version, checked, sequential, deleted) == ("/a", 1, True, "/n0000000001", True)
    transaction = client.transaction()
    transaction.create("/b")
    transaction.check("/missing", 1)
    transaction.create("/c")
    results = transaction.commit()
    assert [type(each) for each in results] == [
        exceptions.RolledBackError,
        exceptions.NoNodeError,
        exceptions.RuntimeInconsistency,
    ]
    assert client.get_children("/") == ["n0000000001"]


def test_watches(clients: Clients) -> None:
    client, other = clients
    told: Future[WatchedEvent] = Future()
    assert client.exists("/a", watch=told.set_result) is None
    other.create("/a")
    assert told.result(30).type == EventType.CREATED
    told = Future()
    client.get_children("/a", watch=told.set_result)
    other.create("/a/b")
    event = told.result(30)
    assert (event.type, event.path) == (EventType.CHILD, "/a")
    told = Future()
    client.get("/a/b", watch=told.set_result)
    other.delete("/a/b")
    assert told.result(30).type == EventType.DELETED


def test_acls_are_stored(clients: Clients) -> None:
    client = clients[0]
    acl = make_digest_acl("someone", "secret", read=True)
    client.create("/a", acl=[acl])
    found, stat = client.get_acls("/a")
    assert (found, stat.aversion) == ([acl], 0)
    assert client.set_acls("/a", [make_digest_acl("other", "secret", all=True)]).aversion == 1
    with pytest.raises(exceptions.BadVersionError):
        client.set_acls("/a", [acl], version=0)
    client.create("/open")
    assert [each.id.scheme for each in client.get_acls("/open")[0]] == ["world"]
    client.add_auth("digest", "someone:secret")


def test_lock(clients: Clients) -> None:
    first, second = (client.Lock("/lock") for client in clients)
    assert first.acquire(timeout=30)
    assert not second.acquire(blocking=False)
    waiting: Future[bool] = Future()
    thread = threading.Thread(target=lambda: waiting.set_result(second.acquire(timeout=30)))
    thread.start()
    first.release()
    assert waiting.result(30)
    second.release()
    thread.join()


def test_election(clients: Clients) -> None:
    order: list[str] = []
    leading, may_end = threading.Event(), threading.Event()

    def lead(name: str) -> None:
        order.append(name)
        leading.set()
        may_end.wait(30)

    first = threading.Thread(target=clients[0].Election("/election", "first").run, args=(lead, "first"))
    first.start()
    assert leading.wait(30)
    second = threading.Thread(target=clients[1].Election("/election", "second").run, args=(lead, "second"))
    second.start()
    may_end.set()
    for thread in (first, second):
        thread.join(30)
    assert order == ["first", "second"]


def test_party(clients: Clients) -> None:
    parties: list[Any] = [client.Party("/party", f"member-{index}") for index, client in enumerate(clients)]
    for party in parties:
        party.join()
    assert sorted(parties[0]) == ["member-0", "member-1"]
    clients[1].stop()
    assert list(parties[0]) == ["member-0"], "a session that ends takes its ephemeral nodes along"


def test_counter(clients: Clients) -> None:
    counters = [client.Counter("/counter") for client in clients]

    def count(counter: Any) -> None:
        for _ in range(20):
            counter += 1

    threads = [threading.Thread(target=count, args=(counter,)) for counter in counters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert counters[0].value == 40


def test_barrier_and_queue(clients: Clients) -> None:
    queues: list[Any] = [client.Queue("/queue") for client in clients]
    for value in (b"a", b"b", b"c"):
        queues[0].put(value)
    assert [queues[1].get() for _ in range(3)] == [b"a", b"b", b"c"]
    barrier = clients[0].Barrier("/barrier")
    barrier.create()
    assert not clients[1].Barrier("/barrier").wait(timeout=0.05)
    barrier.remove()
    assert clients[1].Barrier("/barrier").wait(timeout=30)


def test_a_killed_server_loses_nothing(tmp_path: Path) -> None:
    """What was answered is there after kill -9, and so are sessions with their ephemeral nodes."""
    client = KazooClient(timeout=20)
    for round_number in range(3):
        with server_process(tmp_path, kill=True) as address:
            client.set_hosts(address)
            if round_number == 0:
                client.start(timeout=30)
                client.create("/mine", ephemeral=True)
            else:
                assert client.retry(client.exists, "/mine") is not None
                assert client.client_id[0] == client.get("/mine")[1].ephemeralOwner
            for number in range(20):
                client.retry(client.create, f"/{round_number}-{number}")
    with server_process(tmp_path) as address:
        client.set_hosts(address)
        names = client.retry(client.get_children, "/")
        assert set(names) >= {f"{round_number}-{number}" for round_number in range(3) for number in range(20)}
        client.stop()
        client.close()
