"""The performance tables of README.md match bench/results/*.json."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import readme_figures
from readme_figures import BEGIN, END, FiguresError, Row, Table


def test_the_readme_matches_the_results() -> None:
    text = readme_figures.README.read_text()
    assert text == readme_figures.rendered(text), "run python tools/readme_figures.py"


def test_a_changed_result_changes_the_readme(tmp_path: Path) -> None:
    for table in readme_figures.saved_tables():
        shutil.copy(readme_figures.RESULTS / table.file, tmp_path)
    saved = json.loads((tmp_path / "broker.json").read_text())
    (start,) = (line for line in saved["lines"] if line["line"] == "start")
    start["medians"][0]["ottla"] = 9.5
    (tmp_path / "broker.json").write_text(json.dumps(saved))
    text = readme_figures.README.read_text()
    assert "| s | 9.50 |" in readme_figures.rendered(text, tmp_path)
    assert readme_figures.rendered(text, tmp_path) != text


def test_a_cell_has_one_number() -> None:
    rows = [line for line in readme_figures.figures().splitlines() if line.startswith("| ") and "---" not in line]
    cells = [cell.strip() for row in rows if "Workload" not in row for cell in row.split("|")[3:5]]
    assert len(cells) == 2 * sum(len(table.rows) for table in readme_figures.saved_tables())
    assert [cell for cell in cells if not re.fullmatch(r"[\d,]+(\.\d+)?", cell)] == []


@pytest.mark.parametrize(
    ("ours", "theirs", "is_less_better", "verdict"),
    [
        (2.0, 1.0, False, "2.0x better"),
        (1.0, 2.0, False, "**2.0x worse**"),
        (1.0, 2.0, True, "2.0x better"),
        (1.5, 1.0, True, "**1.50x worse**"),
        (1.005, 1.0, False, "equal"),
        (1.0, 1.005, False, "equal"),
    ],
)
def test_a_verdict_says_better_or_worse(ours: float, theirs: float, is_less_better: bool, verdict: str) -> None:
    row = Row("x", "s", "x", "m", is_less_better=is_less_better)
    assert readme_figures._verdict(row, ours, theirs) == verdict


def test_a_missing_figure_is_an_error() -> None:
    table = Table("x", "x.json", "peer", "peer", ())
    with pytest.raises(FiguresError, match=r"x\.json has no m of x for 'ottla' and 'peer'"):
        readme_figures._values(table, Row("x", "s", "x", "m"), {"lines": []})


@pytest.mark.parametrize("text", ["", BEGIN, END, f"{END}{BEGIN}"])
def test_missing_markers_are_an_error(text: str) -> None:
    with pytest.raises(FiguresError, match="must contain"):
        readme_figures.rendered(text)
