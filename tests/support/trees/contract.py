"""The promises of `Coordination`, each as a test of an empty tree. `PROMISES` has them all, by name.

They hold for every implementation of ours, and for an Apache ZooKeeper behind a client.
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
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SetData,
    Znode,
)

Promise = Callable[[Coordination], Awaitable[None]]
PROMISES: dict[str, Promise] = {}


def promise(test: Promise) -> Promise:
    PROMISES[test.__name__] = test
    return test


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
