"""What the log says of changed configs."""

from __future__ import annotations

from ottla.base.config_changes import changes_of


def test_what_is_set_changed_and_removed() -> None:
    before = {"a": "1", "b": "2", "c": "3"}
    assert changes_of(before, {"a": "1", "b": "5", "d": "x"}) == "b=5 (was 2), c removed (was 3), d=x (was not set)"
    assert changes_of(before, dict(before)) == ""


def test_passwords_are_not_shown() -> None:
    told = changes_of({"p": "old", "q": "old"}, {"p": "secret", "r": "secret"}, lambda _: True)
    assert told == "p=[hidden] (was [hidden]), q removed (was [hidden]), r=[hidden] (was not set)"
