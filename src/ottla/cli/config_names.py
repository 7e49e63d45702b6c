"""Names of configs as arguments. Brokers reset a config that does not exist without an error, as Kafka does."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

from ottla.cli.session import CommandError

if TYPE_CHECKING:
    from ottla.client.administer import AsyncAdmin, ConfigResource


async def check_known(admin: AsyncAdmin, resource: ConfigResource, names: Iterable[str]) -> None:
    """Raises an error if the resource has no config of one of these names."""
    wanted = list(names)
    if not wanted:
        return
    known = await _names(admin, resource)
    for name in wanted:
        # Configs of a listener have its name in front, and are not listed unless they are set.
        if name not in known and not name.startswith("listener.name."):
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else "list the configs with `ottla configs describe --all`"
            raise CommandError(f"{resource} has no config {name!r}: {hint}")


async def _names(admin: AsyncAdmin, resource: ConfigResource) -> set[str]:
    from ottla.client.administer import ConfigResource, ResourceType

    resources = [resource]
    if resource.kind is ResourceType.BROKER and not resource.name:
        # Cluster-wide defaults list only what is set; the brokers list all names.
        resources += [ConfigResource.broker(one.broker_id) for one in (await admin.describe_cluster()).brokers[:1]]
    described = await admin.describe_configs(resources)
    return {name for entries in described.values() for name in entries}
