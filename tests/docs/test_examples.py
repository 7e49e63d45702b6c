"""Examples that are wrong are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.examples import Example, ExampleError, examples_of, run

PAGE = """# Page

```python
print("first")
```

prints

```text
first
```

```
$ not a program
```

```python
second = 2
```
"""


def test_blocks_are_found_with_their_lines_and_what_they_print(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert examples_of(page) == [
        Example("page.md", 4, 'print("first")\n', "first\n"),
        Example("page.md", 18, "second = 2\n", None),
    ]


@pytest.mark.parametrize("before", ["", "```python\n1\n```\n```text\n1\n```\n", "```python\n1\n```\n```\n$ x\n```\n"])
def test_a_text_that_no_program_prints(tmp_path: Path, before: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(before + "```text\nwhat?\n```\n")
    with pytest.raises(ExampleError, match="no program stands before"):
        examples_of(page)


def example(program: str, prints: str | None = None) -> Example:
    return Example("page.md", 7, program, prints)


@pytest.mark.parametrize(
    "good",
    [
        example("print(1)"),
        example("print(1)\nprint(2)", "1\n2\n"),
        example("print('after', 0.125, 's')", "after … s\n"),
        example("print('localhost:9092')", "localhost:9092\n"),
    ],
)
def test_what_is_right_passes(good: Example, tmp_path: Path) -> None:
    run(good, "127.0.0.1:1234", tmp_path)


def test_the_address_is_the_brokers(tmp_path: Path) -> None:
    program = "assert 'localhost:9092'.startswith('127.'); print('localhost:9092'[:4])"
    run(example(program, "127.\n"), "127.0.0.1:1234", tmp_path)


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (example("print(1)", "2\n"), r"page\.md:7 prints\n1\n\nand the page says\n2"),
        (example("print(1)\nprint(2)", "1\n"), "and the page says"),
        (example("print('a\\nb')", "a…b\n"), "and the page says"),
        (example("1 / 0"), r"(?s)page\.md:7 failed \(1\).*ZeroDivisionError"),
        (example("import warnings; warnings.warn('old')"), r"(?s)failed \(1\).*UserWarning: old"),
        (example("import sys; print('odd', file=sys.stderr)"), r"(?s)failed \(0\).*odd"),
    ],
)
def test_what_is_wrong_is_reported(bad: Example, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ExampleError, match=sentence):
        run(bad, "127.0.0.1:1234", tmp_path)
