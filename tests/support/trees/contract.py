"""The promises of `Coordination`, each as a test of an empty tree. `PROMISES` has them all, by name.

They hold for every implementation of ours, and for an Apache ZooKeeper behind our client. `SESSION_PROMISES` need two
sessions with the same tree; a lone broker's tree in its own process has only one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.base.coordination import (
    BadVersionError,
    Check,
    Coordination,
    Create,
    Delete,
    EphemeralParentError,
    EventKind,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SetData,
    WatchEvent,
    Znode,
)

Promise = Callable[[Coordination], Awaitable[None]]
PROMISES: dict[str, Promise] = {}
SessionPromise = Callable[[Coordination, Coordination], Awaitable[None]]
SESSION_PROMISES: dict[str, SessionPromise] = {}


def promise(test: Promise) -> Promise:
    PROMISES[test.__name__] = test
    return test


def session_promise(test: SessionPromise) -> SessionPromise:
    SESSION_PROMISES[test.__name__] = test
    return test


class Events:
    """What a watch was told, and a way to wait for it."""

    def __init__(self) -> None:
        self.told: list[WatchEvent] = []
        self._news = asyncio.Event()

    def __call__(self, event: WatchEvent) -> None:
        self.told.append(event)
        self._news.set()

    async def count(self, expected: int) -> None:
        async with asyncio.timeout(20):
            while len(self.told) < expected:
                self._news.clear()
                await self._news.wait()


async def existing(tree: Coordination, path: str) -> Znode:
    node = await tree.get(path)
    assert node is not None, path
    return node


@promise
async def what_is_not_there_is_none(tree: Coordination) -> None:
    assert await tree.get("/a") is None
    assert await tree.get("/a/b") is None
    assert await tree.get_many(["/a", "/b"]) == [None, None]
    assert await tree.get_many([]) == []
    assert await tree.children("/a") == []
    assert await tree.children("/") == []
    await existing(tree, "/")


@promise
async def a_node_is_as_it_was_made(tree: Coordination) -> None:
    assert await tree.create("/a", b"\x00data\xff") == "/a"
    node = await existing(tree, "/a")
    assert (node.data, node.version) == (b"\x00data\xff", 0)
    assert node.created_zxid == node.modified_zxid > 0
    assert node.created_ms == node.modified_ms > 0
    await tree.create("/empty")
    assert (await existing(tree, "/empty")).data == b""


@promise
async def a_node_needs_its_parent(tree: Coordination) -> None:
    with pytest.raises(NoNodeError) as caught:
        await tree.create("/a/b")
    assert caught.value.path == "/a/b"
    assert await tree.children("/") == []


@promise
async def a_node_is_made_once(tree: Coordination) -> None:
    await tree.create("/a", b"first")
    with pytest.raises(NodeExistsError) as caught:
        await tree.create("/a", b"second")
    assert caught.value.path == "/a"
    assert (await existing(tree, "/a")).data == b"first"


@promise
async def parents_are_made_where_they_are_missing(tree: Coordination) -> None:
    await tree.create("/a", b"kept")
    assert await tree.create("/a/b/c/d", b"new", parents=True) == "/a/b/c/d"
    assert [(await existing(tree, path)).data for path in ("/a", "/a/b", "/a/b/c", "/a/b/c/d")] == [
        b"kept",
        b"",
        b"",
        b"new",
    ]
    with pytest.raises(NodeExistsError):
        await tree.create("/a/b/c/d", parents=True)


@promise
async def a_write_counts_versions(tree: Coordination) -> None:
    await tree.create("/a", b"0")
    made = await existing(tree, "/a")
    assert await tree.set("/a", b"1") == 1
    assert await tree.set("/a", b"2", version=1) == 2
    node = await existing(tree, "/a")
    assert (node.data, node.version) == (b"2", 2)
    assert node.created_zxid == made.created_zxid
    assert node.modified_zxid > made.modified_zxid
    assert node.created_ms == made.created_ms <= node.modified_ms


@promise
async def a_write_can_ask_for_a_version(tree: Coordination) -> None:
    await tree.create("/a", b"0")
    await tree.set("/a", b"1")
    for stale in (0, 2):
        with pytest.raises(BadVersionError) as caught:
            await tree.set("/a", b"lost", version=stale)
        assert caught.value.path == "/a"
    assert (await existing(tree, "/a")).data == b"1"
    with pytest.raises(NoNodeError):
        await tree.set("/b", b"")


@promise
async def a_node_can_be_deleted(tree: Coordination) -> None:
    await tree.create("/a")
    await tree.set("/a", b"1")
    with pytest.raises(BadVersionError):
        await tree.delete("/a", version=0)
    await tree.delete("/a", version=1)
    assert await tree.get("/a") is None
    assert await tree.children("/") == []
    with pytest.raises(NoNodeError) as caught:
        await tree.delete("/a")
    assert caught.value.path == "/a"


@promise
async def a_node_with_children_stays(tree: Coordination) -> None:
    await tree.create("/a/b", parents=True)
    with pytest.raises(NotEmptyError) as caught:
        await tree.delete("/a")
    assert caught.value.path == "/a"
    with pytest.raises(BadVersionError):
        await tree.delete("/a", version=7)
    await tree.delete("/a/b")
    await tree.delete("/a")
    assert await tree.children("/") == []


@promise
async def a_node_made_again_is_another(tree: Coordination) -> None:
    await tree.create("/a/b", parents=True)
    await tree.set("/a/b", b"1")
    before = await existing(tree, "/a/b")
    await tree.delete("/a/b")
    await tree.create("/a/b", b"again")
    node = await existing(tree, "/a/b")
    assert node.version == 0
    assert node.created_zxid > before.modified_zxid


@promise
async def children_are_names_in_order(tree: Coordination) -> None:
    for path in ("/a", "/a/10", "/a/9", "/a/é", "/a/b", "/a/b/deep", "/ab", "/a0", "/a.c"):
        await tree.create(path)
    assert await tree.children("/a") == ["10", "9", "b", "é"]
    assert await tree.children("/") == ["a", "a.c", "a0", "ab"]
    assert await tree.children("/a/b") == ["deep"]
    assert await tree.children("/a/b/deep") == []


@promise
async def many_are_read_in_order(tree: Coordination) -> None:
    for name in "abc":
        await tree.create(f"/{name}", name.encode())
    found = await tree.get_many(["/c", "/x", "/a", "/c", "/b"])
    assert [node and node.data for node in found] == [b"c", None, b"a", b"c", b"b"]
    assert found[0] == await tree.get("/c")


@promise
async def sequential_nodes_are_numbered(tree: Coordination) -> None:
    await tree.create("/q")
    assert await tree.create("/q/n-", b"data", sequential=True) == "/q/n-0000000000"
    assert await tree.create("/q/n-", sequential=True) == "/q/n-0000000001"
    assert (await existing(tree, "/q/n-0000000000")).data == b"data"
    await tree.create("/q/other")
    await tree.delete("/q/n-0000000001")
    assert await tree.create("/q/m", sequential=True) == "/q/m0000000003", "every child that ever was counts"
    assert await tree.create("/new/n", sequential=True, parents=True) == "/new/n0000000000"
    with pytest.raises(NoNodeError):
        await tree.create("/missing/n", sequential=True)


@promise
async def a_number_that_is_taken_is_refused(tree: Coordination) -> None:
    await tree.create("/q")
    await tree.create("/q/n0000000001")
    with pytest.raises(NodeExistsError) as caught:
        await tree.create("/q/n", sequential=True)
    assert caught.value.path in ("/q/n", "/q/n0000000001")
    assert await tree.children("/q") == ["n0000000001"]


@promise
async def operations_together_see_each_other(tree: Coordination) -> None:
    await tree.create("/old", b"old")
    await tree.transact(
        [
            Check("/old", 0),
            Create("/a", b"0"),
            Create("/a/b"),
            SetData("/a", b"1", 0),
            Create("/a/n", sequential=True),
            Delete("/a/b", 0),
            Check("/a", 1),
            Delete("/old"),
            Create("/old", b"new"),
        ]
    )
    assert await tree.children("/a") == ["n0000000001"]
    node = await existing(tree, "/a")
    assert (node.data, node.version) == (b"1", 1)
    again = await existing(tree, "/old")
    assert (again.data, again.version) == (b"new", 0)
    assert node.created_zxid == node.modified_zxid == again.created_zxid, "one id for all"


@promise
async def all_operations_are_done_or_none(tree: Coordination) -> None:
    await tree.create("/a", b"0")
    before = await tree.get_many(["/", "/a"])
    for failing, error in (
        (Create("/a"), NodeExistsError),
        (Create("/x/y"), NoNodeError),
        (SetData("/x", b""), NoNodeError),
        (SetData("/a", b"", 5), BadVersionError),
        (Check("/x"), NoNodeError),
        (Check("/a", 0), BadVersionError),
        (Delete("/x"), NoNodeError),
        (Delete("/a"), NotEmptyError),
    ):
        with pytest.raises(error) as caught:
            await tree.transact(
                [SetData("/a", b"lost"), Create("/a/lost"), Create("/b"), failing, Create("/nowhere/at/all")]
            )
        assert caught.value.path == failing.path
        assert await tree.get_many(["/", "/a"]) == before
        assert await tree.children("/") == ["a"]
        assert await tree.children("/a") == []


@promise
async def a_whole_tree_can_be_deleted(tree: Coordination) -> None:
    for path in ("/t/a/b/c", "/t/a/d", "/t/a0", "/t/a.b/x", "/t/ab", "/t/A", "/ta", "/t/é/é"):
        await tree.create(path, parents=True)
    await tree.delete_trees(["/t/a"])
    assert await tree.children("/t") == ["A", "a.b", "a0", "ab", "é"]
    assert await tree.children("/t/a.b") == ["x"]
    assert await tree.get_many(["/t/a", "/t/a/b", "/t/a/b/c", "/t/a/d"]) == [None] * 4
    await tree.delete_trees(["/t/a"])
    await tree.delete_trees(["/t"])
    assert await tree.children("/") == ["ta"]
    await tree.create("/t")
    assert await tree.children("/t") == []


@promise
async def ids_of_writes_rise(tree: Coordination) -> None:
    last = 0
    for number in range(5):
        await tree.create(f"/{number}")
        node = await existing(tree, f"/{number}")
        assert node.created_zxid > last
        await tree.set(f"/{number}", b"")
        last = (await existing(tree, f"/{number}")).modified_zxid
        assert last > node.created_zxid


@promise
async def writers_who_check_versions_lose_nothing(tree: Coordination) -> None:
    await tree.create("/counter", b"0")
    collisions = 0

    async def count_up() -> None:
        nonlocal collisions
        while True:
            node = await existing(tree, "/counter")
            try:
                await tree.set("/counter", b"%d" % (int(node.data) + 1), node.version)
            except BadVersionError:
                collisions += 1
            else:
                return

    await asyncio.gather(*(count_up() for _ in range(20)))
    node = await existing(tree, "/counter")
    assert (node.data, node.version) == (b"20", 20)
    assert collisions > 0, "they never met"


@promise
async def names_in_sequence_are_given_once(tree: Coordination) -> None:
    await tree.create("/q")
    made = await asyncio.gather(*(tree.create("/q/n", sequential=True) for _ in range(50)))
    assert sorted(made) == [f"/q/n{number:010d}" for number in range(50)]
    assert await tree.children("/q") == [path.removeprefix("/q/") for path in sorted(made)]


@promise
async def what_is_no_path_is_refused(tree: Coordination) -> None:
    bad = ["", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/a/./b", "/a\x00", "/a\x1fb", "/\x7f", "/\ud800", "/\uffff"]
    for path in bad:
        with pytest.raises(ValueError, match="path"):
            await tree.get(path)
        with pytest.raises(ValueError, match="path"):
            await tree.create(path)
        with pytest.raises(ValueError, match="path"):
            await tree.transact([Create("/fine"), Create(path)])
    for path in ("/...", "/.a", "/a..", "/<default>", "/a b", "/%2F"):
        await tree.create(path)
    assert await tree.children("/") == sorted(["...", ".a", "a..", "<default>", "a b", "%2F"])


# --- watches --------------------------------------------------------------------------------------------------------


@promise
async def a_watch_is_told_before_the_answer_to_the_write(tree: Coordination) -> None:
    events = Events()
    assert await tree.get("/a", events) is None
    await tree.create("/a")
    assert events.told == [WatchEvent(EventKind.CREATED, "/a")]
    await tree.get("/a", events)
    await tree.set("/a", b"1")
    assert events.told[1:] == [WatchEvent(EventKind.CHANGED, "/a")]
    await tree.get("/a", events)
    await tree.delete("/a")
    assert events.told[2:] == [WatchEvent(EventKind.DELETED, "/a")]


@promise
async def a_watch_is_told_once(tree: Coordination) -> None:
    events = Events()
    await tree.create("/a")
    await tree.get("/a", events)
    for _ in range(3):
        await tree.set("/a", b"1")
    await tree.delete("/a")
    assert events.told == [WatchEvent(EventKind.CHANGED, "/a")]


@promise
async def children_are_watched_apart_from_data(tree: Coordination) -> None:
    data, children = Events(), Events()
    await tree.create("/a")
    await tree.get("/a", data)
    assert await tree.children("/a", children) == []
    await tree.create("/a/b")
    assert (data.told, children.told) == ([], [WatchEvent(EventKind.CHILDREN, "/a")])
    await tree.children("/a", children)
    await tree.set("/a", b"1")
    assert (len(data.told), len(children.told)) == (1, 1)
    await tree.set("/a/b", b"1")
    await tree.create("/a/b/c")
    assert len(children.told) == 1, "neither a child's data nor its children count"
    await tree.delete("/a/b/c")
    await tree.delete("/a/b")
    assert children.told[1:] == [WatchEvent(EventKind.CHILDREN, "/a")]
    await tree.children("/a", children)
    await tree.delete("/a")
    assert children.told[2:] == [WatchEvent(EventKind.DELETED, "/a")]


@promise
async def children_of_nothing_are_not_watched(tree: Coordination) -> None:
    events = Events()
    assert await tree.children("/a", events) == []
    await tree.create("/a")
    await tree.create("/a/b")
    assert events.told == []


@promise
async def many_nodes_are_watched_at_once(tree: Coordination) -> None:
    events = Events()
    await tree.create("/a")
    await tree.get_many(["/a", "/b", "/c"], events)
    await tree.transact([Create("/b"), SetData("/a", b"1"), Create("/c"), Delete("/c")])
    assert events.told == [
        WatchEvent(EventKind.CREATED, "/b"),
        WatchEvent(EventKind.CHANGED, "/a"),
        WatchEvent(EventKind.CREATED, "/c"),
    ]


@promise
async def refused_writes_are_told_to_nobody(tree: Coordination) -> None:
    events = Events()
    await tree.create("/a")
    await tree.get_many(["/a", "/b"], events)
    with pytest.raises(BadVersionError):
        await tree.transact([Create("/b"), SetData("/a", b"1", 7)])
    with pytest.raises(NodeExistsError):
        await tree.create("/a")
    assert events.told == []
    await tree.set("/a", b"2")
    assert len(events.told) == 1


@promise
async def several_watches_of_a_node_are_all_told(tree: Coordination) -> None:
    first, second = Events(), Events()
    await tree.create("/a")
    await tree.get("/a", first)
    await tree.get("/a", second)
    await tree.set("/a", b"")
    assert len(first.told) == len(second.told) == 1


@promise
async def a_watch_that_fails_is_nobody_elses_failure(tree: Coordination) -> None:
    def fail(event: WatchEvent) -> None:
        raise ValueError(event)

    events = Events()
    await tree.create("/a")
    await tree.get("/a", fail)
    await tree.get("/a", events)
    await tree.set("/a", b"")
    assert len(events.told) == 1
    assert await tree.children("/") == ["a"]


@promise
async def a_tree_that_is_deleted_is_told_node_by_node(tree: Coordination) -> None:
    events, children = Events(), Events()
    for path in ("/t/a/b", "/t/c"):
        await tree.create(path, parents=True)
    await tree.get_many(["/t", "/t/a", "/t/a/b", "/t/c"], events)
    await tree.children("/", children)
    await tree.delete_trees(["/t"])
    assert {event.path for event in events.told} == {"/t", "/t/a", "/t/a/b", "/t/c"}
    assert {event.kind for event in events.told} == {EventKind.DELETED}
    assert children.told == [WatchEvent(EventKind.CHILDREN, "/")]


# --- ephemeral nodes and sessions -----------------------------------------------------------------------------------


@promise
async def an_ephemeral_node_has_an_owner(tree: Coordination) -> None:
    await tree.create("/lasting")
    await tree.create("/mine", b"data", ephemeral=True)
    await tree.transact([Create("/too", ephemeral=True)])
    assert (await existing(tree, "/lasting")).owner == 0
    assert (await existing(tree, "/mine")).owner == (await existing(tree, "/too")).owner == tree.session_id != 0
    assert await tree.create("/n-", ephemeral=True, sequential=True) == "/n-0000000003"


@promise
async def an_ephemeral_node_has_no_children(tree: Coordination) -> None:
    await tree.create("/mine", ephemeral=True)
    with pytest.raises(EphemeralParentError) as caught:
        await tree.create("/mine/child")
    assert caught.value.path == "/mine/child"
    assert await tree.children("/mine") == []


@session_promise
async def ephemeral_nodes_end_with_their_session(tree: Coordination, other: Coordination) -> None:
    events, children = Events(), Events()
    await tree.create("/group")
    await other.create("/group/member", ephemeral=True)
    await other.create("/lasting")
    await tree.get("/group/member", events)
    await tree.children("/group", children)
    assert (await existing(tree, "/group/member")).owner == other.session_id != tree.session_id
    await other.close()
    await events.count(1)
    await children.count(1)
    assert events.told == [WatchEvent(EventKind.DELETED, "/group/member")]
    assert await tree.children("/group") == []
    await existing(tree, "/lasting")


@session_promise
async def what_one_writes_the_other_is_told(tree: Coordination, other: Coordination) -> None:
    events = Events()
    await tree.create("/a")
    await tree.get_many(["/a", "/b"], events)
    await other.set("/a", b"1")
    await other.create("/b")
    await events.count(2)
    assert events.told == [WatchEvent(EventKind.CHANGED, "/a"), WatchEvent(EventKind.CREATED, "/b")]
    assert (await existing(tree, "/a")).data == b"1"


@session_promise
async def one_of_two_is_elected(tree: Coordination, other: Coordination) -> None:
    """As controllers are: an ephemeral node and a counter that has to be in the expected version, together."""
    await tree.create("/epoch", b"0")
    won = await asyncio.gather(
        *(each.transact([Create("/controller", ephemeral=True), SetData("/epoch", b"1", 0)]) for each in (tree, other)),
        return_exceptions=True,
    )
    assert sorted(isinstance(each, NodeExistsError) for each in won) == [False, True]
    winner, loser = (tree, other) if won[0] is None else (other, tree)
    controller = await existing(loser, "/controller")
    assert controller.owner == winner.session_id
    events = Events()
    await loser.get("/controller", events)
    await winner.delete("/controller", controller.version)
    await events.count(1)
    await loser.transact([Create("/controller", ephemeral=True), SetData("/epoch", b"2", 1)])
