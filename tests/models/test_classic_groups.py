"""Classic groups against their promises, by seed. More of them: `python -m models.classic_groups 1000` (in tests/)."""

from __future__ import annotations

import pytest

from models.classic_groups import ClassicGroupModel
from support.coordinators import in_loop


@pytest.mark.parametrize("seed", range(40))
@in_loop
async def test_whatever_clients_do_the_group_keeps_its_promises(seed: int) -> None:
    await ClassicGroupModel(seed).run(80)
