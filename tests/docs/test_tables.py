"""Rows of tables in the documentation have as many cells as there are columns: GitHub drops others, or shows text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def uneven_rows(text: str) -> list[str]:
    found = []
    columns = None
    for line in re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL).splitlines():
        if not line.startswith("|"):
            columns = None
            continue
        cells = re.sub(r"`[^`]*`|\\\|", "", line).count("|")
        if columns is not None and cells != columns:
            found.append(line)
        columns = columns or cells
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_rows_have_a_cell_for_each_column(page: Path) -> None:
    assert uneven_rows(page.read_text("utf-8")) == []


def test_a_row_with_too_few_cells_is_found() -> None:
    assert uneven_rows("| a | b |\n| --- |\n| `x|y` | z\\|z |\n\n| c |\n| --- |\n") == ["| --- |"]
