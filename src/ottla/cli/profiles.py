"""Profiles: named sets of client configs in a file, so that you need not repeat them in every command.

The file is `ottla/config.toml` in `$XDG_CONFIG_HOME` or `~/.config`, unless OTTLA_CONFIG names another one:

    profile = "local"               # used when no profile is named

    [profiles.local]
    "bootstrap.servers" = "localhost:9092"

    [profiles.production]
    "bootstrap.servers" = "kafka-1:9092,kafka-2:9092"
    "linger.ms" = 5
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

FILE_VARIABLE: Final = "OTTLA_CONFIG"
_KEYS: Final = {"profile", "profiles"}

Values = Mapping[str, str | int | float | bool]


class ProfileError(Exception):
    """The config file cannot be read, or has no such profile."""


@dataclass(frozen=True, slots=True)
class Profiles:
    """The parsed config file."""

    path: Path
    profiles: Mapping[str, Any] = field(default_factory=dict)
    """As they are in the file; a profile is validated when it is used."""
    default: str | None = None
    exists: bool = True

    def get(self, name: str | None) -> Values:
        """The configs of a profile; of the default profile if `name` is None."""
        name = self.default if name is None else name
        if name is None:
            return {}
        if name in self.profiles:
            return _values(self.path, name, self.profiles[name])
        if not self.exists:
            raise ProfileError(f"unknown profile {name!r}: the config file {self.path} does not exist")
        close = get_close_matches(name, self.profiles, n=1)
        known = f"it has {', '.join(sorted(self.profiles))}" if self.profiles else "it has no profiles"
        hint = f"did you mean {close[0]!r}?" if close else known
        raise ProfileError(f"unknown profile {name!r} in {self.path}: {hint}")


def profiles_path(environment: Mapping[str, str]) -> Path:
    if named := environment.get(FILE_VARIABLE):
        return Path(named)
    home = environment.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "ottla" / "config.toml"


def read_profiles(environment: Mapping[str, str]) -> Profiles:
    """The parsed config file; empty if there is none, unless the environment variable names it."""
    path = profiles_path(environment)
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if environment.get(FILE_VARIABLE):
            raise ProfileError(f"{path}, set by the environment variable {FILE_VARIABLE}, does not exist") from None
        return Profiles(path, exists=False)
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path} is not valid TOML: {error}") from None
    if unknown := sorted(given.keys() - _KEYS):
        raise ProfileError(f"{path}: unknown key {unknown[0]!r}; use profile or [profiles.NAME]")
    default = given.get("profile")
    if default is not None and not isinstance(default, str):
        raise ProfileError(f"{path}: profile must be the name of a profile, not {default!r}")
    profiles = given.get("profiles", {})
    if not isinstance(profiles, dict):
        raise ProfileError(f"{path}: profiles must be tables, for example [profiles.local]")
    return Profiles(path, profiles, default)


def _values(path: Path, name: str, values: Any) -> Values:
    if not isinstance(values, dict):
        raise ProfileError(f"{path}: profile {name!r} must be a table, as in [profiles.{name}]")
    for key, value in values.items():
        if isinstance(value, dict):
            raise ProfileError(
                f'{path}: quote the keys of profile {name!r}, for example "{key}.{next(iter(value), "x")}" = …'
            )
        if not isinstance(value, str | int | float | bool):
            raise ProfileError(f"{path}: {key} of profile {name!r} must be a string, a number, true or false")
    return values


def complete_profiles(incomplete: str) -> list[str]:
    """Shell completion for profile names; empty if the config file cannot be read."""
    try:
        return sorted(name for name in read_profiles(os.environ).profiles if name.startswith(incomplete))
    except ProfileError:
        return []
