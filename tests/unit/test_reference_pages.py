"""The reference in docs/ is as the code is."""

from __future__ import annotations

from pathlib import Path

import pytest

import reference_pages
from ottla.broker.configs.broker_config import BROKER_CONFIG
from ottla.broker.configs.group_configs import GROUP_CONFIG
from ottla.broker.configs.keys.update_modes import INTERNAL
from ottla.client.config import ADMIN_CONFIG, CONSUMER_CONFIG, PRODUCER_CONFIG
from ottla.client.config_keys.elsewhere import OWNERS
from ottla.log.topic_config import TOPIC_CONFIG
from ottla.spark.option_keys import READ_OPTIONS, WRITE_OPTIONS


@pytest.mark.parametrize("name", reference_pages.PAGES)
def test_a_page_is_as_the_code_is(name: str) -> None:
    assert name not in reference_pages.stale_pages(), "run python tools/reference_pages.py"


def test_every_key_has_a_row_and_says_what_it_is() -> None:
    broker, topic = reference_pages.broker_config(), reference_pages.topic_config()
    assert [key.name for key in BROKER_CONFIG if key.name not in INTERNAL and f"| `{key.name}` |" not in broker] == []
    assert [key.name for key in TOPIC_CONFIG if f"| `{key.name}` |" not in topic] == []
    group = reference_pages.group_config()
    assert [key.name for key in GROUP_CONFIG if f"| `{key.name}` |" not in group] == []
    client = reference_pages.client_config()
    clients = [key for schema in (PRODUCER_CONFIG, CONSUMER_CONFIG, ADMIN_CONFIG) for key in schema]
    assert [name for name in (*OWNERS, *(key.name for key in clients)) if f"| `{name}` |" not in client] == []
    spark, options = reference_pages.spark_options(), (*READ_OPTIONS, *WRITE_OPTIONS)
    assert [key.name for key in options if f"| `{key.name}` |" not in spark] == []
    keys = *BROKER_CONFIG, *TOPIC_CONFIG, *GROUP_CONFIG, *clients, *options
    assert [key.name for key in keys if not key.doc.endswith(".")] == []


def test_a_page_that_is_missing_or_other_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_pages, "HOME", tmp_path)
    (tmp_path / "apis.md").write_text("# Other\n")
    (tmp_path / "topic-config.md").write_text(reference_pages.topic_config())
    assert reference_pages.stale_pages() == [
        "broker-config.md",
        "group-config.md",
        "client-config.md",
        "spark-options.md",
        "apis.md",
    ]
