"""docs/ARCHITECTURE.md names only modules, classes and functions that exist."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import ottla
from ottla.broker.configs.broker_config import BROKER_CONFIG

PAGE = Path(__file__).parents[2] / "docs" / "ARCHITECTURE.md"
PACKAGES = sorted(module.name for module in pkgutil.iter_modules(ottla.__path__) if module.ispkg)
PATH = re.compile(rf"`(?:ottla\.)?((?:{'|'.join(PACKAGES)})(?:\.\w+)*)`")
CODE_BLOCKS = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def resolved(path: str) -> object:
    """The module, class or function. Raises ImportError or AttributeError if it does not exist."""
    parts = path.split(".")
    found: object = ottla
    for at, part in enumerate(parts):
        if isinstance(found, type) or not hasattr(found, "__path__") or hasattr(found, part):
            found = getattr(found, part)
        else:
            found = importlib.import_module(".".join(["ottla", *parts[: at + 1]]))
    return found


def named_paths() -> list[str]:
    """Of the text, without diagrams. Some broker configs look like paths."""
    configs = {key.name for key in BROKER_CONFIG} | {key.name.removeprefix("ottla.") for key in BROKER_CONFIG}
    return sorted(set(PATH.findall(CODE_BLOCKS.sub("", PAGE.read_text("utf-8")))) - configs)


@pytest.mark.parametrize("path", named_paths())
def test_a_path_exists(path: str) -> None:
    resolved(path)


def test_the_page_follows_a_record_through_the_code() -> None:
    assert len(named_paths()) > 100


@pytest.mark.parametrize("path", ["log.absent", "log.segment.Absent", "log.segment.Segment.absent", "absent.segment"])
def test_a_path_that_does_not_exist_is_found(path: str) -> None:
    with pytest.raises((ImportError, AttributeError)):
        resolved(path)


def test_every_package_has_a_row() -> None:
    page = PAGE.read_text("utf-8")
    assert [name for name in PACKAGES if f"| `ottla.{name}` |" not in page] == []


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", PAGE.read_text("utf-8"))
    assert [link for link in links if not (PAGE.parent / link).exists()] == []
