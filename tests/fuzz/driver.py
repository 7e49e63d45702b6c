"""What every fuzzer does: count outcomes, show progress, and tell seed and case when something unexpected is raised."""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeVar

Case = TypeVar("Case")
PROGRESS_EVERY = 50_000


def fuzz(
    seed: int, count: int, cases: Iterator[Case], check: Callable[[Case], str], describe: Callable[[Case], str]
) -> Counter[str]:
    """How often each outcome came among the first `count` cases."""
    outcomes: Counter[str] = Counter()
    for number, case in enumerate(islice(cases, count), start=1):
        try:
            outcomes[check(case)] += 1
        except Exception as error:
            error.add_note(f"seed {seed}, case {number}: {describe(case)}")
            raise
        if number % PROGRESS_EVERY == 0:
            sys.stderr.write(f"\r{number:,} of {count:,}")
            sys.stderr.flush()
    return outcomes


def main(what: str, run: Callable[[int, int], Counter[str]]) -> None:
    parser = argparse.ArgumentParser(description=f"Read mutated {what} with every reader; stop at any disagreement.")
    parser.add_argument("--count", type=int, default=1_000_000, help="how many (default: a million)")
    parser.add_argument("--seed", type=int, default=None, help="where the damage comes from (default: a new one)")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    sys.stdout.write(f"{what}, seed {seed}\n")
    outcomes = run(seed, options.count)
    sys.stdout.write("\n" + "".join(f"{count:>9,}  {outcome}\n" for outcome, count in outcomes.most_common()))
