"""Which cluster a command works on, and how its clients are set up."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.session import CommandError, Settings
from ottla.client.config import AdminConfig, CommonConfig, ConsumerConfig, ProducerConfig
from ottla.client.errors import ConfigError

FILE = """
profile = "local"

[profiles.local]
"bootstrap.servers" = "of-default:1"

[profiles.production]
"bootstrap.servers" = "of-profile:1"
"linger.ms" = 7
"""


@pytest.fixture
def file(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "config.toml"
    path.write_text(FILE)
    return {"OTTLA_CONFIG": str(path)}


def chosen(
    *, bootstrap: str | None = None, profile: str | None = None, client_config: tuple[str, ...] = ()
) -> Settings:
    settings = Settings()
    settings.choose(bootstrap=bootstrap, profile=profile, client_config=client_config)
    return settings


def test_the_command_line_comes_before_the_environment_and_that_before_the_file(file: dict[str, str]) -> None:
    everything = file | {"OTTLA_BOOTSTRAP": "of-environment:1"}
    explicit = chosen(bootstrap="of-option:1", profile="production", client_config=("bootstrap.servers=of-x:1",))
    assert explicit.named_bootstrap(everything) == "of-x:1"
    assert chosen(bootstrap="of-option:1", profile="production").named_bootstrap(everything) == "of-option:1"
    assert chosen(profile="production").named_bootstrap(everything) == "of-profile:1"
    assert chosen().named_bootstrap(everything) == "of-environment:1"
    assert chosen().named_bootstrap(file | {"OTTLA_PROFILE": "production"}) == "of-profile:1"
    assert chosen().named_bootstrap(file) == "of-default:1"
    assert chosen().named_bootstrap({"XDG_CONFIG_HOME": "/nowhere"}) is None


def test_what_comes_after_the_command_wins() -> None:
    settings = chosen(bootstrap="before:1", client_config=("acks=1", "linger.ms=2"))
    settings.choose(bootstrap="after:1", profile=None, client_config=["acks=0"])
    assert (settings.bootstrap, settings.client_config) == ("after:1", {"acks": "0", "linger.ms": "2"})
    settings.choose(bootstrap=None, profile=None, client_config=None)
    assert settings.bootstrap == "after:1"


def test_a_profile_serves_every_client_and_options_win(file: dict[str, str]) -> None:
    settings = chosen(profile="production", client_config=("request.timeout.ms=5",))
    own = {"linger.ms": 0, "request.timeout.ms": 1}
    producer = settings.client_settings(ProducerConfig, own, file)
    assert (producer["linger.ms"], producer["request.timeout.ms"]) == (7, "5")
    assert "linger.ms" not in settings.client_settings(AdminConfig, {}, file)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            '[profiles.p]\n"bootstrap.server" = "x:1"',
            "profile p: unknown client config 'bootstrap.server'; did",
        ),
        ('[profiles.q]\n"acks" = 1', "unknown profile 'p' in"),
        ('[profiles.p]\n"bootstrap.servers" = "nonsense"', "'nonsense' is no"),
    ],
)
def test_what_is_wrong_with_a_profile_ends_the_command(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(CommandError, match=reason):
        chosen(profile="p").client_settings(AdminConfig, {}, {"OTTLA_CONFIG": str(path)})


@pytest.mark.parametrize("kind", [AdminConfig, ConsumerConfig, ProducerConfig])
@pytest.mark.parametrize("key", ["security.protocol", "sasl.mechanism", "ssl.truststore.location"])
def test_a_profile_that_asks_for_security_is_refused(tmp_path: Path, kind: type[CommonConfig], key: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f'[profiles.p]\n"bootstrap.servers" = "x:1"\n"{key}" = "SSL"')
    with pytest.raises(ConfigError, match="TLS and SASL"):
        chosen(profile="p").client_settings(kind, {}, {"OTTLA_CONFIG": str(path)})


def test_assignments_need_a_key_and_an_equals_sign() -> None:
    with pytest.raises(CommandError, match=r"'linger.ms' is not of the form KEY=VALUE"):
        chosen(client_config=("linger.ms",))
