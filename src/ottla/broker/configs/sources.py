"""The sources of settings: a properties file, the environment, the command line.

Environment variables are named as in Kafka's container images: `KAFKA_` and the key in upper case, with _ for a dot, __
for an underscore and ___ for a dash. `OTTLA_METRICS_PORT` is ottla.metrics.port.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.base.config import ConfigError, ConfigSchema
from ottla.broker.configs.properties import PropertiesError, parse_properties

_MEANT: Final = 0.85
"""How similar a variable must be to a key to count as a typo. Other programs use the environment, too: KAFKA_BROKERS
may be meant for a client."""
_NO_SETTINGS: Final = re.compile(
    # Variables of Kafka's scripts and images, and those that Kubernetes sets for a service named kafka.
    r"KAFKA_(\w*OPTS|HOME|VERSION|DEBUG\w*|JMX_\w+|LOG4J_\w+|TOOLS_\w+|CLUSTER_ID|MODE|SERVICE_\w+|PORT(_\d+_\w+)?)"
)


@dataclass(frozen=True, slots=True)
class Setting:
    """A key, its value as text, and a description of its source."""

    key: str
    text: str
    origin: str


def collect_settings(
    path: Path | None, overrides: Sequence[str], environ: Mapping[str, str], schema: ConfigSchema
) -> dict[str, Setting]:
    """By key: those of the file, overridden by the environment, overridden by `key=value` from the command line."""
    settings: dict[str, Setting] = {}
    if path is not None:
        settings.update((each.key, each) for each in settings_of_file(path))
    settings.update((each.key, each) for each in settings_of_environment(environ, schema))
    settings.update((each.key, each) for each in settings_of_command(overrides))
    return settings


def settings_of_file(path: Path) -> Iterator[Setting]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(str(path), f"the file cannot be read: {error.strerror}") from None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = content.decode("latin-1")  # as Java reads it
    try:
        properties = parse_properties(text)
    except PropertiesError as error:
        raise ConfigError(f"{path}:{error.line}", error.reason) from None
    for each in properties:
        yield Setting(each.key, each.value, f"{path}:{each.line}")


def settings_of_environment(environ: Mapping[str, str], schema: ConfigSchema) -> Iterator[Setting]:
    """Ignores variables that are not settings; passes on one that is similar to a key, so that it is refused."""
    names = {key.name.lower(): key.name for key in schema}
    for variable, text in sorted(environ.items()):
        prefix, _, rest = variable.partition("_")
        if prefix not in ("KAFKA", "OTTLA") or not rest or _NO_SETTINGS.fullmatch(variable):
            continue
        key = _key_of_variable(rest if prefix == "KAFKA" else variable)
        if key in names or key.startswith("listener.name.") or schema.nearest(key, _MEANT):
            yield Setting(names.get(key, key), text, f"the variable {variable}")


def _key_of_variable(name: str) -> str:
    return name.lower().replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def settings_of_command(overrides: Sequence[str]) -> Iterator[Setting]:
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise ConfigError(override, "it is not key=value (from --override)")
        yield Setting(key.strip(), text, f"--override {key.strip()}")
