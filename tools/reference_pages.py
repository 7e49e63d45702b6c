"""Writes docs/reference/ from the code: the keys of brokers, topics, groups, clients and Spark, and the APIs served.

`python tools/reference_pages.py` writes the pages anew; with `--check` it only says which are not as the code is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from ottla.base.config import ConfigKey
from ottla.broker.configs.broker_config import BROKER_CONFIG, WITHOUT_EFFECT
from ottla.broker.configs.group_configs import GROUP_CONFIG, broker_synonym
from ottla.broker.configs.keys.update_modes import DYNAMIC_ONLY, INTERNAL, UpdateMode, update_mode
from ottla.broker.configs.store import NOT_WHILE_RUNNING
from ottla.broker.handlers import handlers
from ottla.client.config import ADMIN_CONFIG, COMMON_CONFIG, CONSUMER_CONFIG, PRODUCER_CONFIG
from ottla.client.config_keys.elsewhere import HARMLESS_VALUES, OWNERS, REFUSED
from ottla.client.config_keys.elsewhere import WITHOUT_EFFECT as WITHOUT_EFFECT_HERE
from ottla.log.broker_config import BROKER_SCALED, BROKER_SYNONYMS
from ottla.log.topic_config import TOPIC_CONFIG
from ottla.spark.option_keys import READ_OPTIONS, WRITE_OPTIONS

HOME = Path(__file__).resolve().parent.parent / "docs" / "reference"
_NOTE = "<!-- Written by tools/reference_pages.py from the code; changes here are lost. -->"


_HEAD = ("key", "type", "default", "allowed", "what it is")


def broker_config() -> str:
    shown = [key for key in BROKER_CONFIG if key.name not in INTERNAL]
    return _page(
        "A broker's config",
        """\
Kafka 3.9's keys, with its defaults and rules, and a few of our own (`ottla.…`). They come from a properties file
(`ottla start server.properties`), from the environment (`KAFKA_NUM_PARTITIONS=3` is `num.partitions=3`: dots are `_`,
underscores `__`, dashes `___`) and from the command line (`--override num.partitions=3`); the later wins.

*Change*: keys with `restart` are read at the start; those with `cluster-wide` can be changed while the broker runs, for
it alone or for all brokers at once, by `ottla configs` or Kafka's own tools.

What differs from Kafka: logs lie in `ottla.data.dir` unless `log.dirs` says otherwise; `zookeeper.connect` stays empty,
as the tree is embedded; an unknown key is refused, with the nearest right one; a listener on `0.0.0.0` is advertised by
the machine's name.""",
        _table(
            (*_HEAD[:4], "change", _HEAD[4]),
            ((*_key_cells(key)[:4], _change(key.name), key.doc) for key in shown if key.name not in WITHOUT_EFFECT),
        ),
        "## Accepted, and without effect yet",
        "Files of Kafka may set these: they are checked, and a broker says at its start which of them change nothing.",
        _table(_HEAD, (_key_cells(key) for key in shown if key.name in WITHOUT_EFFECT)),
        "## Set only while the broker runs",
        "No file can set these. They have no effect yet.",
        _table(_HEAD, map(_key_cells, DYNAMIC_ONLY)),
    )


def topic_config() -> str:
    return _page(
        "A topic's config",
        """\
Kafka 3.9's keys, with its defaults and rules: `ottla topics create --config KEY=VALUE`, `ottla configs`, or Kafka's own
tools. Where a topic does not set a key, the broker's key of the same meaning holds.""",
        _table(
            ("key", "type", "default", "allowed", "the broker's key", "what it is"),
            (
                (*_key_cells(key)[:4], ", ".join(f"`{name}`" for name in _stand_ins(key.name)), key.doc)
                for key in TOPIC_CONFIG
            ),
        ),
    )


def group_config() -> str:
    return _page(
        "A group's config",
        """\
Kafka 4's keys of groups that use the consumer protocol; those of share groups and streams are not there. They are set
by `ottla configs set --group GROUP KEY=VALUE` or Kafka's own tools, and hold from a member's next heartbeat on. Where a
group does not set a key, the broker's key of the same meaning holds. The broker's keys `group.consumer.min.…` and
`group.consumer.max.…` are the limits.""",
        _table(
            ("key", "type", "default", "the broker's key", "what it is"),
            ((*_key_cells(key)[:3], f"`{broker_synonym(key.name)}`", key.doc) for key in GROUP_CONFIG),
        ),
    )


def client_config() -> str:
    own_rows = {
        title: [
            key for key in schema if key.name not in COMMON_CONFIG or key.default != COMMON_CONFIG[key.name].default
        ]
        for title, schema in {
            "## Producers": PRODUCER_CONFIG,
            "## Consumers": CONSUMER_CONFIG,
            "## Admins": ADMIN_CONFIG,
        }.items()
    }
    return _page(
        "A client's config",
        """\
Kafka 4.3's keys, with its defaults and rules. They are given by Kafka's names or by Python's, in a mapping or as
keywords, which win: `Producer({"linger.ms": 20})` is `Producer(linger_ms=20)`. Values are Python's, or texts as in a
properties file. An unknown key is refused, with the nearest right one.

What differs from Kafka: `allow.auto.create.topics` is off by default; without (de)serializers bytes are taken and given
as they are; what names a Java class there is an object, a function or a short name here; levels of codecs and the
system's buffers are left alone until they are set.""",
        "## All clients",
        _table(_HEAD, map(_key_cells, COMMON_CONFIG)),
        *(part for title, keys in own_rows.items() for part in (title, _table(_HEAD, map(_key_cells, keys)))),
        "## Taken, and without effect",
        "Configs of Java's clients may set these: a warning says why they change nothing.",
        _table(("key", "clients", "why"), (_foreign_cells(*item) for item in sorted(WITHOUT_EFFECT_HERE.items()))),
        "## Refused",
        "Kafka's clients have these keys, and here they are an error: what they ask for would not be done.",
        _table(
            ("key", "clients", "why"),
            (
                *(
                    _foreign_cells(name, f"anything but `{value}`: {reason}")
                    for name, (value, reason) in sorted(HARMLESS_VALUES.items())
                ),
                *(_foreign_cells(*item) for item in sorted(REFUSED.items())),
            ),
        ),
    )


def _foreign_cells(name: str, reason: str) -> tuple[str, str, str]:
    owners = "all" if len(OWNERS[name]) == 3 else ", ".join(sorted(OWNERS[name]))
    return f"`{name}`", owners, reason


def apis() -> str:
    return _page(
        "APIs that are served",
        "What a broker answers, by Kafka's keys and versions. Clients learn the same from ApiVersions.",
        _table(
            ("key", "API", "versions"),
            (
                (
                    str(key),
                    entry.request.__name__.removesuffix("Request"),
                    f"{entry.served}"
                    if entry.served == entry.advertised
                    else f"{entry.served} (told: {entry.advertised})",
                )
                for key, entry in handlers().items()
            ),
        ),
    )


def spark_options() -> str:
    return _page(
        'Options of format("ottla")',
        """\
Those of Spark's own connector for Kafka, by the same names in any case, and a few of our own. What begins with `kafka.`
is a setting of [the client](client-config.md). An unknown option is refused, with the nearest right one; options for
reading are no harm where is written, and the other way round. [How to read](../spark/source.md) and
[how to write](../spark/sink.md) say more.""",
        "## Reading",
        _table(_HEAD, map(_key_cells, READ_OPTIONS)),
        "## Writing",
        _table(_HEAD, map(_key_cells, WRITE_OPTIONS)),
    )


PAGES: dict[str, Callable[[], str]] = {
    "broker-config.md": broker_config,
    "topic-config.md": topic_config,
    "group-config.md": group_config,
    "client-config.md": client_config,
    "spark-options.md": spark_options,
    "apis.md": apis,
}


def _change(name: str) -> str:
    mode = UpdateMode.READ_ONLY if name in NOT_WHILE_RUNNING else update_mode(name)
    return "restart" if mode is UpdateMode.READ_ONLY else mode.value


def _key_cells(key: ConfigKey) -> tuple[str, str, str, str, str]:
    default = "" if key.default is None else key.text(key.default)
    return f"`{key.name}`", key.type.value, f"`{default}`" if default else "", key.allowed, key.doc


def _stand_ins(topic_key: str) -> list[str]:
    if topic_key in BROKER_SCALED:
        return [name for name, _ in BROKER_SCALED[topic_key]]
    return [BROKER_SYNONYMS[topic_key]] if topic_key in BROKER_SYNONYMS else []


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |" for cells in lines)


def _page(title: str, *parts: str) -> str:
    return "\n\n".join((f"# {title}", _NOTE, *parts)) + "\n"


def stale_pages() -> list[str]:
    """Pages that are not as the code is."""
    return [
        name
        for name, content in PAGES.items()
        if not (HOME / name).is_file() or (HOME / name).read_text(encoding="utf-8") != content()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is not as the code is")
    if parser.parse_args().check:
        stale = stale_pages()
        for name in stale:
            print(f"docs/reference/{name} is not as the code is: run python tools/reference_pages.py")
        return 1 if stale else 0
    HOME.mkdir(parents=True, exist_ok=True)
    for name, content in PAGES.items():
        (HOME / name).write_text(content(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
