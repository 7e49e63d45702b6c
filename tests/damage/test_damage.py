"""Files of a log are damaged in hundreds of ways. Each time nothing is affected, or it is repaired with a warning, or
the reader is told: never silence, and never another partition's problem.

The same damages each time, unless `OTTLA_SEED` draws others; `make soak` draws thousands.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from damage.damaged_home import (
    COMPACTED,
    CONFIG,
    Case,
    Damage,
    Template,
    header_damages,
    is_between_batches,
    is_unverifiable,
    make_template,
    random_damage,
)
from ottla.log import local_disk

SEED = int(os.environ.get("OTTLA_SEED", "260854880"))
COUNT = int(os.environ.get("OTTLA_DAMAGES", "200"))
SOAK_COUNT = int(os.environ.get("OTTLA_DAMAGES", "6000"))
STATES = ("clean", "killed", "live")


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[bool, bool], Template]]:
    """By whether the topic is compacted, and whether the broker was stopped cleanly. Nothing here is about power cuts,
    so nothing is synced."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_disk, "_sync", lambda _: None)
        patch.setattr(local_disk.LocalDisk, "sync_directory", lambda *_: None)
        made = {}
        for compacted in (False, True):
            for clean in (False, True):
                path = tmp_path_factory.mktemp("template")
                made[compacted, clean] = make_template(path, compacted=compacted, clean=clean)
        yield made


def run(templates: dict[tuple[bool, bool], Template], place: Path, damage: Damage, state: str, seed: int) -> str:
    """One case in a fresh copy; an assertion that fails says how to have it again."""
    chance = Random(seed)
    compacted = chance.random() < 0.3
    if state == "killed" and is_unverifiable(templates[compacted, False].path, damage):
        state = "clean"
    template = templates[compacted, state != "killed"]
    if compacted and is_between_batches(template.path, damage):
        damage = replace(damage, position=damage.position + 1)
    root = place / "logs"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(template.path, root)
    case = Case(root, template.truth, COMPACTED if compacted else CONFIG, chance)
    try:
        return case.run(damage, live=state == "live", clean=state != "killed")
    except Exception as error:
        about = f"seed {seed}, {state}, compacted={compacted}, {damage}"
        raise AssertionError(f"{type(error).__name__}: {error}\n{about}") from error


def run_random(templates: dict[tuple[bool, bool], Template], place: Path, seed: int) -> str:
    chance = Random(seed)
    state = chance.choice(STATES)
    template = templates[False, state == "clean"].path  # a running broker has no mark of a clean stop
    damage = random_damage(template, chance)
    return run(templates, place, damage, state, seed)


def test_random_damage(templates: dict[tuple[bool, bool], Template], tmp_path: Path) -> None:
    outcomes = Counter(run_random(templates, tmp_path, SEED + number) for number in range(COUNT))
    print(f"OTTLA_SEED={SEED}: {COUNT} random damages: {dict(outcomes)}")  # noqa: T201  # shown if a later test fails
    assert outcomes.keys() <= {"unaffected", "repaired", "told"}


def test_flips_in_batch_headers(templates: dict[tuple[bool, bool], Template], tmp_path: Path) -> None:
    """Every fifth byte each run; all of them with `make soak`."""
    damages = header_damages(templates[False, True].path)
    outcomes: Counter[str] = Counter()
    for number, damage in list(enumerate(damages))[SEED % 5 :: 5]:
        outcomes[run(templates, tmp_path, damage, STATES[number // 5 % 3], SEED + number)] += 1
    assert outcomes["told"] + outcomes["repaired"] > outcomes["unaffected"], outcomes


@pytest.mark.soak
def test_random_damage_at_length(templates: dict[tuple[bool, bool], Template], tmp_path: Path) -> None:
    outcomes = Counter(run_random(templates, tmp_path, SEED + number) for number in range(SOAK_COUNT))
    print(f"OTTLA_SEED={SEED}: {SOAK_COUNT} random damages: {dict(outcomes)}")  # noqa: T201


@pytest.mark.soak
@pytest.mark.parametrize("state", STATES)
def test_every_byte_of_batch_headers(templates: dict[tuple[bool, bool], Template], tmp_path: Path, state: str) -> None:
    outcomes: Counter[str] = Counter()
    for number, damage in enumerate(header_damages(templates[False, state != "killed"].path)):
        for bit in range(8):
            flip = Damage(damage.file, damage.kind, damage.position, 1 << bit)
            outcomes[run(templates, tmp_path, flip, state, SEED + number * 8 + bit)] += 1
    print(f"OTTLA_SEED={SEED}: flips in headers, {state}: {dict(outcomes)}")  # noqa: T201
