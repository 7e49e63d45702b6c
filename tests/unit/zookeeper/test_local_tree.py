"""A tree in a file: the promises of every tree, and what is its own, from sharing commits to refusing damaged files."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.clock import SystemClock
from ottla.base.coordination import (
    ANY_VERSION,
    CoordinationError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
)
from ottla.testing.manual_clock import ManualClock
from ottla.zookeeper.local_tree import LocalTree
from ottla.zookeeper.server import tree_thread
from ottla.zookeeper.server.core import ServerCore
from ottla.zookeeper.tree_file import APPLICATION_ID, TreeFile, TreeFileError
from ottla.zookeeper.tree_reserve import RESERVE_BYTES
from support.examples import examples
from support.trees.contract import PROMISES, existing


def with_tree(path: Path, use: Callable[[LocalTree], Awaitable[None]]) -> None:
    async def run() -> None:
        tree = await LocalTree.open(path, SystemClock())
        try:
            await use(tree)
        finally:
            await tree.close()

    asyncio.run(asyncio.wait_for(run(), timeout=60))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "made" / "tree.db"


@pytest.mark.parametrize("name", PROMISES)
def test_contract(place: Path, name: str) -> None:
    with_tree(place, PROMISES[name])


# --- the file -------------------------------------------------------------------------------------------------------


def test_a_tree_is_the_same_after_reopening(place: Path) -> None:
    seen = []

    async def fill(tree: LocalTree) -> None:
        await tree.create("/a/b", b"data", parents=True)
        await tree.set("/a/b", b"more")
        await tree.create("/a/n", sequential=True)
        seen.append(await tree.get_many(["/", "/a", "/a/b", "/a/n0000000001"]))

    async def look(tree: LocalTree) -> None:
        seen.append(await tree.get_many(["/", "/a", "/a/b", "/a/n0000000001"]))
        assert await tree.create("/a/n", sequential=True) == "/a/n0000000002"
        assert (await existing(tree, "/a/n0000000002")).created_zxid > (await existing(tree, "/a/b")).modified_zxid

    with_tree(place, fill)
    with_tree(place, look)
    assert seen[0] == seen[1]
    assert None not in seen[0]


def test_ids_rise_past_what_was_deleted(place: Path) -> None:
    ids = []

    async def make_and_delete(tree: LocalTree) -> None:
        await tree.create("/a")
        ids.append((await existing(tree, "/a")).created_zxid)
        await tree.delete("/a")

    for _ in range(3):
        with_tree(place, make_and_delete)
    assert ids == [1, 3, 5]


def test_times_are_the_clock_s(place: Path) -> None:
    async def run() -> None:
        clock = ManualClock(1_000)
        tree = await LocalTree.open(place, clock)
        await tree.create("/a")
        clock.advance_ms(500)
        await tree.set("/a", b"")
        node = await existing(tree, "/a")
        assert (node.created_ms, node.modified_ms) == (1_000, 1_500)
        await tree.close()

    asyncio.run(run())


def test_commits_are_synced(place: Path) -> None:
    file = TreeFile.open(place)
    try:
        assert file.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert file.connection.execute("PRAGMA synchronous").fetchone() == (2,), "FULL: each commit is synced"
    finally:
        file.close()


def test_the_stat_is_zookeeper_s(place: Path) -> None:
    """What an embedded server will show, though nobody asks for it yet."""

    async def use(tree: LocalTree) -> None:
        await tree.create("/a")
        for name in "bcd":
            await tree.create(f"/a/{name}")
        await tree.delete("/a/b")
        await tree.create("/a/c/deep")
        await tree.delete_trees(["/a/c"])

    with_tree(place, use)
    file = TreeFile.open(place)
    node = file.read("/a")
    file.close()
    assert node is not None
    assert (node.children_made, node.child_count, node.version) == (3, 1, 0)
    assert (node.created_zxid, node.modified_zxid, node.children_zxid) == (1, 1, 7)


# --- one thread, shared commits -------------------------------------------------------------------------------------


def test_concurrent_callers_share_a_commit(place: Path) -> None:
    async def use(tree: LocalTree) -> None:
        await tree.create("/a")
        before = tree.commit_count
        await asyncio.gather(*(tree.create(f"/a/{number}") for number in range(200)))
        assert tree.commit_count - before < 20
        assert len(await tree.children("/a")) == 200

    with_tree(place, use)


def test_one_refusal_among_many_is_one_caller_s(place: Path) -> None:
    async def use(tree: LocalTree) -> None:
        answers = await asyncio.gather(
            tree.create("/a"),
            tree.create("/a"),
            tree.create("/x/y"),
            tree.create("/a/b"),
            tree.transact([Create("/lost"), Create("/x/y")]),
            tree.children("/"),
            return_exceptions=True,
        )
        kinds = [type(each) for each in answers]
        assert kinds == [str, NodeExistsError, NoNodeError, str, NoNodeError, list]
        assert answers[-1] == ["a"]

    with_tree(place, use)


def test_a_cancelled_caller_harms_nobody(place: Path) -> None:
    async def use(tree: LocalTree) -> None:
        tasks = [asyncio.ensure_future(tree.create(f"/{number}")) for number in range(50)]
        await asyncio.sleep(0)  # all have asked
        for task in tasks[::2]:
            task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert answers[1::2] == [f"/{number}" for number in range(1, 50, 2)]
        await tree.set("/1", b"still there")

    with_tree(place, use)


def test_the_loop_goes_on_while_the_disk_works(place: Path) -> None:
    async def use(tree: LocalTree) -> None:
        writing = asyncio.ensure_future(tree.transact([Create(f"/{number}", bytes(100)) for number in range(20_000)]))
        turns = 0
        while not writing.done():
            await asyncio.sleep(0)
            turns += 1
        await writing
        assert turns > 10
        assert len(await tree.children("/")) == 20_000
        found = await tree.get_many([f"/{number}" for number in range(20_000)])
        assert all(node is not None and node.data == bytes(100) for node in found)

    with_tree(place, use)


def test_closing_finishes_what_was_asked(place: Path) -> None:
    async def run() -> None:
        tree = await LocalTree.open(place, SystemClock())
        asked = [asyncio.ensure_future(tree.create(f"/{number}")) for number in range(100)]
        await asyncio.sleep(0)
        await asyncio.gather(tree.close(), tree.close())
        assert [await each for each in asked] == [f"/{number}" for number in range(100)]
        with pytest.raises(RuntimeError, match=r"tree\.db: the tree is closed"):
            await tree.get("/")
        await tree.close()

    asyncio.run(run())
    assert not place.with_name("tree.db-wal").exists(), "a clean stop leaves one file"


def test_an_empty_transaction_writes_nothing(place: Path) -> None:
    async def use(tree: LocalTree) -> None:
        await tree.transact([])
        await tree.create("/a")
        assert (await existing(tree, "/a")).created_zxid == 1

    with_tree(place, use)


def test_a_number_may_be_a_whole_name(place: Path) -> None:
    async def use(tree: LocalTree) -> None:
        await tree.create("/q")
        assert await tree.create("/q/", sequential=True) == "/q/0000000000"
        assert await tree.create("/", sequential=True) == "/0000000001"
        assert await tree.children("/") == ["0000000001", "q"]

    with_tree(place, use)


@pytest.mark.parametrize("action", ["create", "delete", "delete_trees"])
def test_the_root_stays(place: Path, action: str) -> None:
    async def use(tree: LocalTree) -> None:
        with pytest.raises(ValueError, match="the root is always there"):
            await getattr(tree, action)("/")
        assert await tree.set("/", b"data") == 1

    with_tree(place, use)


# --- files that are refused -----------------------------------------------------------------------------------------


def refused(path: Path) -> str:
    async def run() -> None:
        await LocalTree.open(path, SystemClock())

    with pytest.raises(TreeFileError) as caught:
        asyncio.run(asyncio.wait_for(run(), timeout=30))
    assert str(path) in str(caught.value)
    return caught.value.reason


def filled(path: Path) -> None:
    async def fill(tree: LocalTree) -> None:
        await tree.transact([Create(f"/{number}", bytes(300)) for number in range(2_000)])

    with_tree(path, fill)


def test_a_file_that_is_no_database(place: Path) -> None:
    place.parent.mkdir()
    place.write_bytes(b"broker.id=1\n" * 500)
    assert "no SQLite database; choose another place" in refused(place)
    assert place.read_bytes() == b"broker.id=1\n" * 500


@pytest.mark.parametrize("application_id", [0, 7])
def test_the_database_of_another_program(place: Path, application_id: int) -> None:
    place.parent.mkdir()
    with sqlite3.connect(place) as other:
        other.execute("CREATE TABLE node (path TEXT)")
        other.execute(f"PRAGMA application_id = {application_id}")
    other.close()
    before = place.read_bytes()
    assert "another program; choose another place" in refused(place)
    assert place.read_bytes() == before


def test_a_tree_of_a_later_version(place: Path) -> None:
    filled(place)
    with sqlite3.connect(place) as other:
        other.execute("PRAGMA user_version = 3")
    other.close()
    assert "format 3, this Ottla knows formats 1 to 2; use the version" in refused(place)


@pytest.mark.parametrize(("start", "size"), [(100, 60), (4096, 4096), (50_000, 100_000)])
def test_a_damaged_file(place: Path, start: int, size: int) -> None:
    filled(place)
    content = bytearray(place.read_bytes())
    assert content[68:72] == APPLICATION_ID.to_bytes(4, "big")
    assert len(content) > start + size
    content[start : start + size] = b"\xa5" * size
    place.write_bytes(content)
    assert "the file is damaged" in refused(place)


def test_a_cut_file(place: Path) -> None:
    filled(place)
    with place.open("r+b") as file:
        file.truncate(100_000)
    assert "the file is damaged" in refused(place)


def test_a_folder_in_its_place(place: Path) -> None:
    place.mkdir(parents=True)
    assert "cannot be opened; check that it is no folder" in refused(place)


def test_a_file_where_its_folder_should_be(place: Path) -> None:
    place.parent.write_bytes(b"")
    assert "check the disk" in refused(place)


HOLDER = """
import sys
from pathlib import Path
from ottla.zookeeper.server import tree_thread
from ottla.zookeeper.server.core import ServerCore
from ottla.zookeeper.tree_file import TreeFile
file = TreeFile.open(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


def test_a_tree_that_another_process_uses(place: Path) -> None:
    filled(place)
    command = [sys.executable, "-c", HOLDER, str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        for _ in range(2):
            assert "another process uses this tree, probably a broker or server that is still" in refused(place)
        holder.kill()

    async def look(tree: LocalTree) -> None:
        assert len(await tree.children("/")) == 2_000

    with_tree(place, look)


def test_a_tree_that_is_open_already(place: Path) -> None:
    async def use(tree: LocalTree) -> None:
        with pytest.raises(TreeFileError, match="another process uses this tree"):
            await LocalTree.open(place, SystemClock())
        await tree.create("/a")

    with_tree(place, use)


def test_a_full_disk_loses_nothing_that_was_answered(place: Path) -> None:
    async def use(tree: LocalTree) -> None:
        await tree.create("/kept", b"kept")
        await tree._ask(lambda core: _limit_pages(core.file, 0))
        answers = await asyncio.gather(
            tree.create("/small"), tree.create("/large", bytes(100_000)), return_exceptions=True
        )
        assert isinstance(answers[1], TreeFileError)
        assert "the disk is full: nothing was written; make room" in answers[1].reason
        assert isinstance(answers[0], TreeFileError | str)  # refused with the other, unless it was quicker
        assert (await tree.get("/small") is not None) == isinstance(answers[0], str)
        assert await tree.get("/large") is None
        assert (await existing(tree, "/kept")).data == b"kept"
        await tree._ask(lambda core: _limit_pages(core.file, 1_000_000))
        await tree.create("/large", bytes(100_000))
        assert (await existing(tree, "/large")).created_zxid == (await existing(tree, "/kept")).created_zxid + (
            2 if isinstance(answers[0], str) else 1
        )

    with_tree(place, use)


def test_one_that_fails_is_nobody_elses_failure(place: Path) -> None:
    """Not even with what no future takes, nor when all of them were to share a commit."""

    async def use(tree: LocalTree) -> None:
        ready = threading.Event()
        held = tree._ask(lambda _: ready.wait(60))
        wrong: Sequence[Callable[[ServerCore], object]] = (lambda _: next(iter(())), lambda _: 1 / 0)
        answers = [tree.create("/a"), tree._ask(wrong[0]), tree._ask(wrong[1]), tree.create("/b"), tree.create("/a")]
        gathered = asyncio.gather(*answers, return_exceptions=True)
        await asyncio.sleep(0)  # all have asked
        ready.set()
        assert await held
        first, stopped, divided, second, again = await asyncio.wait_for(gathered, 60)
        assert (first, second) == ("/a", "/b")
        assert isinstance(stopped, RuntimeError)
        assert "StopIteration" in str(stopped)
        assert isinstance(divided, ZeroDivisionError)
        assert isinstance(again, NodeExistsError)
        assert await tree.children("/") == ["a", "b"]

    with_tree(place, use)


def test_a_file_that_cannot_be_closed_keeps_nobody_waiting(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(file: TreeFile) -> None:
        file.connection.close()
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(TreeFile, "close", fail)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    async def use(tree: LocalTree) -> None:
        await tree.create("/a")

    with_tree(place, use)


@pytest.mark.parametrize("step", ["is_reserve_low", "fill_reserve"])
def test_a_reserve_that_cannot_be_looked_at_does_not_end_the_tree(
    place: Path, monkeypatch: pytest.MonkeyPatch, step: str, caplog: pytest.LogCaptureFixture
) -> None:
    failed = threading.Event()

    def fail(_: TreeFile) -> bool:
        failed.set()
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(TreeFile, step, property(fail) if step == "is_reserve_low" else fail)
    monkeypatch.setattr(tree_thread, "_IDLE_S", 0.001)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    async def use(tree: LocalTree) -> None:
        await tree.create("/a")
        assert await asyncio.to_thread(failed.wait, 60)
        await tree.create("/b")
        assert await tree.children("/") == ["a", "b"]

    with_tree(place, use)
    assert "disk I/O error" in caplog.text


def test_a_reserve_is_kept_and_handed_over_to_the_next_run(place: Path) -> None:
    holder, log = place.with_name("tree.db-reserve"), place.with_name("tree.db-wal")
    file = TreeFile.open(place)
    assert file.is_reserve_low
    assert file.fill_reserve()
    assert not file.is_reserve_low
    assert place.stat().st_size >= RESERVE_BYTES
    assert log.stat().st_size >= RESERVE_BYTES
    file.close()
    assert not log.exists()
    assert holder.stat().st_size >= RESERVE_BYTES
    file = TreeFile.open(place)
    assert not holder.exists()
    assert not file.is_reserve_low
    assert log.stat().st_size >= RESERVE_BYTES
    file.close()


def test_a_short_run_needs_no_reserve(place: Path) -> None:
    TreeFile.open(place).close()
    assert [path.name for path in place.parent.iterdir()] == ["tree.db"]


def test_a_reserve_that_was_half_made_is_made_again(place: Path) -> None:
    """The process was killed in the middle."""
    file = TreeFile.open(place)
    file.connection.execute("CREATE TABLE reserve (data BLOB)")
    assert file.fill_reserve()
    file.close()


def _limit_pages(file: TreeFile, count: int) -> None:
    """What SQLite says of a full disk, without one: no page more than there are, or than that count."""
    file.connection.execute(f"PRAGMA max_page_count = {max(count, 1)}")


# --- any operations, beside a model ---------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "a0", "a.b", "é"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
VERSIONS = st.sampled_from([ANY_VERSION, ANY_VERSION, 0, 1])
OPERATIONS = st.one_of(
    st.builds(Create, PATHS, st.binary(max_size=3)),
    st.builds(SetData, PATHS, st.binary(max_size=3), VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
)


class Model:
    """Data and versions by path, in the plainest way."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {"/": (b"", 0)}

    def do(self, operation: Operation) -> bool:
        path = operation.path
        parent = path.rsplit("/", 1)[0] or "/"
        if isinstance(operation, Create):
            if parent not in self.nodes or path in self.nodes:
                return False
            self.nodes[path] = (operation.data or b"", 0)
            return True
        if path not in self.nodes or operation.version not in (ANY_VERSION, self.nodes[path][1]):
            return False
        if isinstance(operation, SetData):
            self.nodes[path] = (operation.data, self.nodes[path][1] + 1)
        elif self.children(path):
            return False
        else:
            del self.nodes[path]
        return True

    def children(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        return sorted(
            each[len(prefix) :]
            for each in self.nodes
            if each != "/" and each.startswith(prefix) and "/" not in each[len(prefix) :]
        )

    def delete_tree(self, path: str) -> None:
        for each in list(self.nodes):
            if each == path or each.startswith(f"{path}/"):
                del self.nodes[each]


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(st.one_of(st.lists(OPERATIONS, min_size=1, max_size=5), PATHS), max_size=12))
def test_any_writes_do_as_a_model_does(
    tmp_path_factory: pytest.TempPathFactory, steps: list[list[Operation] | str]
) -> None:
    async def use(tree: LocalTree) -> None:
        model = Model()
        for step in steps:
            before = dict(model.nodes)
            if isinstance(step, str):
                model.delete_tree(step)
                await tree.delete_trees([step])
                continue
            if all(model.do(operation) for operation in step):
                await tree.transact(step)
            else:
                model.nodes = before
                with pytest.raises(CoordinationError):
                    await tree.transact(step)
        for path, (data, version) in model.nodes.items():
            node = await existing(tree, path)
            assert (node.data, node.version) == (data, version)
            assert await tree.children(path) == model.children(path)

    with_tree(tmp_path_factory.mktemp("model") / "tree.db", use)


# --- earlier formats ------------------------------------------------------------------------------------------------

_FORMAT_1 = """
CREATE TABLE node (path TEXT PRIMARY KEY, parent TEXT NOT NULL, version INTEGER NOT NULL, created_zxid INTEGER NOT NULL,
    modified_zxid INTEGER NOT NULL, children_zxid INTEGER NOT NULL, created_ms INTEGER NOT NULL,
    modified_ms INTEGER NOT NULL, children_made INTEGER NOT NULL, child_count INTEGER NOT NULL, data BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX node_by_parent ON node (parent);
CREATE TABLE tree (last_zxid INTEGER NOT NULL);
INSERT INTO tree VALUES (7);
INSERT INTO node VALUES ('/', '', 0, 0, 0, 0, 0, 0, 3, 2, x'');
INSERT INTO node VALUES ('/a', '/', 2, 4, 7, 4, 1000, 2000, 0, 0, x'414243');
INSERT INTO node VALUES ('/empty', '/', 0, 6, 6, 6, 3000, 3000, 0, 0, x'');
PRAGMA user_version = 1;
"""


def test_a_tree_of_format_1_is_taken_over(place: Path) -> None:
    """What earlier versions wrote: without owners and ACLs, and with empty data where there is none."""
    place.parent.mkdir()
    with sqlite3.connect(place) as old:
        old.executescript(f"{_FORMAT_1}PRAGMA application_id = {APPLICATION_ID};")
    old.close()

    async def look(tree: LocalTree) -> None:
        assert await tree.children("/") == ["a", "empty"]
        node = await existing(tree, "/a")
        assert (node.data, node.version, node.created_zxid, node.modified_zxid) == (b"ABC", 2, 4, 7)
        assert (node.created_ms, node.modified_ms, node.owner) == (1000, 2000, 0)
        empty = await tree.thread.ask(lambda core: core.file.read("/empty"))
        assert empty is not None
        assert empty.data is None

    async def change(tree: LocalTree) -> None:
        await look(tree)
        assert await tree.create("/n", sequential=True, ephemeral=True) == "/n0000000003"
        assert (await existing(tree, "/n0000000003")).created_zxid == 8

    with_tree(place, change)
    with_tree(place, look)
