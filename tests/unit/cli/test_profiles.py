"""Profiles of the config file."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.profiles import ProfileError, profiles_path, read_profiles

FILE = """
profile = "local"

[profiles.local]
"bootstrap.servers" = "localhost:9092"

[profiles.production]
"bootstrap.servers" = "kafka-1:9092"
"request.timeout.ms" = 60000
"""


def named(path: Path, text: str) -> dict[str, str]:
    path.write_text(text)
    return {"OTTLA_CONFIG": str(path)}


def test_profiles_are_read(tmp_path: Path) -> None:
    profiles = read_profiles(named(tmp_path / "config.toml", FILE))
    assert profiles.get(None) == {"bootstrap.servers": "localhost:9092"}
    assert profiles.get("production") == {"bootstrap.servers": "kafka-1:9092", "request.timeout.ms": 60000}


def test_without_a_default_nothing_is_chosen(tmp_path: Path) -> None:
    assert read_profiles(named(tmp_path / "config.toml", FILE.replace('profile = "local"', ""))).get(None) == {}


def test_where_the_file_is(tmp_path: Path) -> None:
    assert profiles_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/ottla/config.toml")
    assert profiles_path({}) == Path.home() / ".config" / "ottla" / "config.toml"
    absent = read_profiles({"XDG_CONFIG_HOME": str(tmp_path)})
    assert absent.get(None) == {}
    with pytest.raises(ProfileError, match=r"unknown profile 'x': the config file .*config.toml does not exist"):
        absent.get("x")


@pytest.mark.parametrize(
    ("text", "profile", "reason"),
    [
        (FILE, "prodution", "unknown profile 'prodution' in .*: did you mean 'production'"),
        (FILE, "x", "unknown profile 'x' in .*: it has local, production"),
        ("", "x", "unknown profile 'x' in .*: it has no profiles"),
        ("a = ", None, "is not valid TOML"),
        ("profil = 'x'", None, "unknown key 'profil'; use profile or"),
        ("profile = 3", None, "profile must be the name of a profile, not 3"),
        ("profiles = 3", None, "profiles must be tables"),
        ("[profiles]\nlocal = 3", "local", "profile 'local' must be a table"),
        ("[profiles.local]\nbootstrap.servers = 'x'", "local", 'for example "bootstrap.servers" = '),
        ("[profiles.local]\nacks = [1]", "local", "acks of profile 'local' must be a string, a number"),
    ],
)
def test_what_is_wrong_with_the_file_is_said(tmp_path: Path, text: str, profile: str | None, reason: str) -> None:
    environment = named(tmp_path / "config.toml", text)
    with pytest.raises(ProfileError, match=reason):
        read_profiles(environment).get(profile)


def test_a_mistake_in_a_profile_that_is_not_used_does_not_matter(tmp_path: Path) -> None:
    profiles = read_profiles(named(tmp_path / "config.toml", f"{FILE}\n[profiles.broken]\nbootstrap.servers = 'x'"))
    assert profiles.get("local") == {"bootstrap.servers": "localhost:9092"}
    with pytest.raises(ProfileError, match="quote the keys of profile 'broken'"):
        profiles.get("broken")


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"set by the environment variable OTTLA_CONFIG, does not exist"):
        read_profiles({"OTTLA_CONFIG": str(tmp_path / "absent.toml")})
    with pytest.raises(ProfileError, match="directory"):
        read_profiles({"OTTLA_CONFIG": str(tmp_path)})
