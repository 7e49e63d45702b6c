"""Tables on a terminal."""

from __future__ import annotations

import pytest

from ottla.cli import output


def test_a_table_shows_control_characters_and_markup_as_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    names = ["\x1b[31mred\x07", "two\nlines", "\u202eback", "[/nope]", "größe 😀"]
    output.show_rows(["transactional id"], [[name] for name in names], title="[/no]\x1b[2J")
    shown = capsys.readouterr().out
    for expected in (r"\x1b[31mred\x07", r"two\nlines", r"\u202eback", "[/nope]", "größe 😀", r"[/no]\x1b[2J"):
        assert expected in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)


def test_a_pipe_gets_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_rows(["transactional id"], [["\u202eback"]])
    assert capsys.readouterr().out == "\u202eback\n"
