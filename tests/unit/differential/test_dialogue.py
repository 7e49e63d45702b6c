"""What a dialogue tells of its steps."""

from __future__ import annotations

from typing import Any

import pytest

from differential.dialogue import Dialogue


@pytest.mark.parametrize(
    ("api", "request_of"),
    [
        ("OffsetCommit", lambda group: {"group_id": group, "topics": []}),
        ("OffsetFetch", lambda group: {"groups": [{"group_id": "$group:0"}, {"group_id": group}]}),
        ("DeleteGroups", lambda group: {"groups_names": ["$group:0", group]}),
        ("ConsumerGroupDescribe", lambda group: {"group_ids": [group]}),
        ("DescribeGroups", lambda group: {"groups": [group]}),
    ],
)
def test_whether_it_asks_for_the_group_without_a_name(api: str, request_of: Any) -> None:
    for group in ("", "$group:1"):
        steps = ({"restart": True}, {"receive": 1}, {"api": api, "version": 1, "request": request_of(group)})
        assert Dialogue(steps).names_empty_group is (group == "")
