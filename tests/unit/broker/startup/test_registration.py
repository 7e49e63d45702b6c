"""A broker's registration: its epoch, lost answers, and registrations that another process left."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from ottla.base.config import ConfigError
from ottla.base.coordination import ConnectionLossError, Operation
from ottla.broker.configs.listeners import Listener
from ottla.broker.startup.registration import Address, Evidence, Registrar, probe
from ottla.broker.startup.session_file import FILE_NAME, SessionFile
from ottla.zookeeper import paths
from ottla.zookeeper.client.connection import SessionToken
from ottla.zookeeper.client.tree import ZooKeeperTree
from ottla.zookeeper.znodes import BrokerRegistration
from support.clients.nowhere import closed_port
from support.trees.contract import existing
from support.trees.servers import EmbeddedServer, connected, embedded_server, expire_session, kill_client

LISTENER = Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092)
NODE = paths.broker(3)


def with_server(place: Path, use: Callable[[EmbeddedServer], Awaitable[None]]) -> None:
    async def run() -> None:
        async with embedded_server(place) as server:
            async with connected(server.address) as tree:
                await paths.ensure_persistent_paths(tree)
            await use(server)

    asyncio.run(asyncio.wait_for(run(), timeout=60))


def answering(evidence: Evidence, asked: list[Sequence[Address]] | None = None) -> Callable[..., Awaitable[Evidence]]:
    async def answer(addresses: Sequence[Address]) -> Evidence:
        if asked is not None:
            asked.append(addresses)
        return evidence

    return answer


def registrar(
    tree: ZooKeeperTree, place: Path, evidence: Evidence = Evidence.GONE, expiry_s: float = 30.0
) -> Registrar:
    file = SessionFile([place])
    return Registrar(tree, 3, session_file=file, expiry_s=expiry_s, probe=answering(evidence))


def test_the_transaction_that_creates_the_node_is_the_epoch(tmp_path: Path) -> None:
    async def use(server: EmbeddedServer) -> None:
        async with connected(server.address) as tree:
            epoch = await registrar(tree, tmp_path).register([LISTENER], "a rack")
            node = await existing(tree, NODE)
            assert (node.created_zxid, node.owner, node.version) == (epoch, tree.session_id, 1)
            found = BrokerRegistration.decode(NODE, node.data)
            assert [str(each) for each in found.endpoints] == ["PLAINTEXT://127.0.0.1:9092"]
            assert (found.rack, found.features) == ("a rack", {"transaction.version": (1, 2)})

    with_server(tmp_path, use)


@pytest.mark.parametrize("is_done", [True, False])
def test_a_lost_answer_is_looked_up(tmp_path: Path, is_done: bool) -> None:
    async def use(server: EmbeddedServer) -> None:
        async with connected(server.address) as tree:
            transact, losses = tree.transact, 1

            async def losing(operations: Sequence[Operation]) -> None:
                nonlocal losses
                if is_done or not losses:
                    await transact(operations)
                if losses:
                    losses -= 1
                    raise ConnectionLossError(NODE, "lost by the test")

            tree.transact = losing  # type: ignore[method-assign]
            epoch = await registrar(tree, tmp_path).register([LISTENER], None)
            assert (await existing(tree, NODE)).created_zxid == epoch
            assert losses == 0

    with_server(tmp_path, use)


def test_a_running_broker_keeps_its_id(tmp_path: Path) -> None:
    async def use(server: EmbeddedServer) -> None:
        async with connected(server.address) as first, connected(server.address) as second:
            epoch = await registrar(first, tmp_path).register([LISTENER], None)
            other = registrar(second, tmp_path / "other", Evidence.ALIVE)
            with pytest.raises(ConfigError, match=r"broker\.id: another running broker is registered with the id 3"):
                await other.look()
            assert (await existing(second, NODE)).created_zxid == epoch

    with_server(tmp_path, use)


def test_a_broker_that_was_killed_comes_back_at_once(tmp_path: Path) -> None:
    """Its former session would last for a minute."""

    async def use(server: EmbeddedServer) -> None:
        killed = await ZooKeeperTree.open(server.address, 60_000)
        before = await registrar(killed, tmp_path).register([LISTENER], None)
        kill_client(killed)
        async with connected(server.address) as tree:
            back = registrar(tree, tmp_path)
            await back.look()
            epoch = await back.register([LISTENER], None)
            assert epoch > before
            assert (await existing(tree, NODE)).owner == tree.session_id

    with_server(tmp_path, use)


@pytest.mark.parametrize("evidence", [Evidence.GONE, Evidence.UNKNOWN])
def test_without_the_session_file_expiry_is_waited_for(
    tmp_path: Path, evidence: Evidence, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(server: EmbeddedServer) -> None:
        killed = await ZooKeeperTree.open(server.address, 600)
        before = await registrar(killed, tmp_path).register([LISTENER], None)
        if evidence is Evidence.GONE:
            (tmp_path / FILE_NAME).unlink()
        kill_client(killed)
        async with connected(server.address) as tree:
            back = registrar(tree, tmp_path, evidence)
            await back.look()
            assert await back.register([LISTENER], None) > before
        assert "waiting up to 35 s until the session expires" in caplog.text

    with_server(tmp_path, use)


def test_a_session_that_does_not_expire_is_another_broker(tmp_path: Path) -> None:
    async def use(server: EmbeddedServer) -> None:
        async with connected(server.address) as first, connected(server.address) as second:
            await registrar(first, tmp_path).register([LISTENER], None)
            with pytest.raises(ConfigError, match=r"registered with the id 3 \(its session 0x.* did not expire"):
                await registrar(second, tmp_path / "other", expiry_s=-4.9).register([LISTENER], None)

    with_server(tmp_path, use)


def test_the_own_address_is_no_evidence_of_another(tmp_path: Path) -> None:
    """The broker may listen where its former process did."""

    async def use(server: EmbeddedServer) -> None:
        killed = await ZooKeeperTree.open(server.address, 60_000)
        await registrar(killed, tmp_path).register([LISTENER], None)
        kill_client(killed)
        async with connected(server.address) as tree:
            await registrar(tree, tmp_path, Evidence.ALIVE).register([LISTENER], None)

    with_server(tmp_path, use)


def test_after_expiry_the_broker_registers_again(tmp_path: Path) -> None:
    async def use(server: EmbeddedServer) -> None:
        async with connected(server.address) as tree:
            own = registrar(tree, tmp_path)
            before = await own.register([LISTENER], None)
            await expire_session(tree)
            assert await own.reregister() > before
            token = SessionFile([tmp_path]).read()
            assert token is not None
            assert token.session_id == tree.session_id == (await existing(tree, NODE)).owner

    with_server(tmp_path, use)


def test_a_node_of_an_own_expired_session_is_replaced(tmp_path: Path) -> None:
    """As servers with ZOOKEEPER-2985 leave it."""

    async def use(server: EmbeddedServer) -> None:
        async with connected(server.address) as tree, connected(server.address) as other:
            own = registrar(tree, tmp_path, Evidence.ALIVE)
            before = await own.register([LISTENER], None)
            await expire_session(tree)
            await other.create(NODE, b"", ephemeral=True)
            own._own_sessions.add(other.session_id)
            assert await own.reregister() > before

    with_server(tmp_path, use)


def test_probes_tell_silence_from_answers() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(14) == b"\0\0\0\n\0\x12\0\0\0\0\0\0\xff\xff"
        writer.write(b"\0\0\0\n")
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        proxy = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        there, shut = (("127.0.0.1", each.sockets[0].getsockname()[1]) for each in (server, proxy))
        gone = ("127.0.0.1", closed_port())
        assert await probe([there]) is Evidence.ALIVE
        assert await probe([gone, there]) is Evidence.ALIVE
        assert await probe([gone, shut]) is Evidence.UNKNOWN
        proxy.close()
        await proxy.wait_closed()
        assert await probe([gone]) is Evidence.GONE
        assert await probe([gone, ("no.such.host.invalid", 1)]) is Evidence.UNKNOWN
        assert await probe([]) is Evidence.UNKNOWN
        server.close()
        await server.wait_closed()

    asyncio.run(run())


# --- the session file -----------------------------------------------------------------------------------------------


def test_only_the_broker_s_user_can_read_the_session(tmp_path: Path) -> None:
    file = SessionFile([tmp_path])
    token = SessionToken(0x7FFF_0000_0000_0001, bytes(range(16)))
    assert file.read() is None
    file.write(token)
    assert file.read() == token
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600
    file.remove()
    file.remove()
    assert file.read() is None


def test_the_session_is_found_in_any_directory(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    SessionFile([second]).write(SessionToken(5, bytes(16)))
    both = SessionFile([first, second])
    assert both.read() == SessionToken(5, bytes(16))
    both.write(SessionToken(6, bytes(16)))
    assert both.read() == SessionToken(6, bytes(16))
    assert not (second / FILE_NAME).exists()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"session_id": "zz", "password": ""}', b"\xff"])
def test_a_session_file_that_cannot_be_read_is_ignored(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    assert SessionFile([tmp_path]).read() is None
    assert "cannot be used, and is ignored" in caplog.text


def test_a_session_that_cannot_be_kept_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    SessionFile([tmp_path / "missing"]).write(SessionToken(5, bytes(16)))
    assert "the ZooKeeper session cannot be kept" in caplog.text
