"""Writes the types of clients' keyword arguments, from the tables of their config keys.

    python tools/client_keywords.py     writes src/ottla/client/config_keywords.py

A test holds the file to the tables.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ottla.base.config import ConfigKey, ValueType
from ottla.client.config import ADMIN_CONFIG, COMMON_CONFIG, CONSUMER_CONFIG, PRODUCER_CONFIG
from ottla.client.config_keys.elsewhere import HARMLESS_VALUES, OWNERS, WITHOUT_EFFECT

FILE: Final = Path(__file__).parent.parent / "src/ottla/client/config_keywords.py"

_TYPES: Final = {
    ValueType.BOOLEAN: "Flag",
    ValueType.INT: "Number",
    ValueType.LONG: "Number",
    ValueType.STRING: "Text",
}
_OWN_TYPES: Final = {
    "acks": "Number",
    "bootstrap.servers": "Servers",
    "interceptor.classes": "Objects",
    "partition.assignment.strategy": "Objects",
    "partitioner.class": "Partitioner",
}
_IN_SIGNATURES: Final = {"key.deserializer", "key.serializer", "value.deserializer", "value.serializer"}
"""The constructors have these themselves: what keys and values are follows from them."""
_SHORT_NAMES: Final = {"interceptor.classes": "interceptors", "partitioner.class": "partitioner"}

_HEAD: Final = '''"""The keyword arguments of clients, for type checkers: every config key by its Python name.

Generated from the tables in `config_keys` by tools/client_keywords.py; change those and run it. Values may also be
texts, as in a properties file; None leaves a key at its default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypedDict

from ottla.net.client_connection import Address

Text: TypeAlias = str | None
Number: TypeAlias = int | str | None
Flag: TypeAlias = bool | str | None
Servers: TypeAlias = str | Address | Iterable[str | Address] | None
Objects: TypeAlias = str | Iterable[Any] | None
Partitioner: TypeAlias = str | Callable[[str, bytes | None, bytes | None, int], int] | None
'''


def source() -> str:
    """The module, not formatted yet."""
    common = {key.name for key in COMMON_CONFIG}
    parts = [_HEAD, _class("CommonKeywords", "TypedDict", "What every client has.", COMMON_CONFIG, _foreign(None))]
    for schema in (PRODUCER_CONFIG, CONSUMER_CONFIG, ADMIN_CONFIG):
        name = f"{schema.kind.capitalize()}Keywords"
        keys = [key for key in schema if key.name not in common | _IN_SIGNATURES]
        parts.append(
            _class(name, "CommonKeywords", f"Those that only the {schema.kind} has.", keys, _foreign(schema.kind))
        )
    return "\n\n".join(parts)


def _class(name: str, base: str, doc: str, keys: Iterable[ConfigKey], foreign: Iterable[str]) -> str:
    fields = {key.name.replace(".", "_"): _OWN_TYPES.get(key.name) or _TYPES[key.type] for key in keys}
    fields |= {short: _OWN_TYPES[key] for key, short in _SHORT_NAMES.items() if key.replace(".", "_") in fields}
    fields |= {key.replace(".", "_"): "object" for key in foreign}
    lines = [f"    {field}: {kind}" for field, kind in sorted(fields.items())]
    return "\n".join([f"class {name}({base}, total=False):", f'    """{doc}"""', "", *lines, ""])


def _foreign(kind: str | None) -> list[str]:
    """Keys of Kafka's that are taken without an effect: by all clients, or by this one."""
    everyone = frozenset({"producer", "consumer", "admin"})
    wanted = everyone if kind is None else frozenset({kind})
    return [name for name in (*HARMLESS_VALUES, *WITHOUT_EFFECT) if OWNERS[name] == wanted]


def formatted() -> str:
    ruff = Path(sys.executable).parent / "ruff"
    done = subprocess.run(
        [ruff, "format", "--stdin-filename", FILE], input=source(), capture_output=True, text=True, check=True
    )
    return done.stdout


if __name__ == "__main__":
    FILE.write_text(formatted())
