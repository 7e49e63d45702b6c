"""Transactions against their promises, by seed and by Hypothesis, which finds short examples of what breaks. More of
them: `python -m models.transactions 1000` (in tests/)."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.transactions import TransactionModel, last_epoch
from support.coordinators import in_loop

FEW_EPOCHS = 5
ALL_EPOCHS = 2**15 - 1


@pytest.mark.parametrize("epochs", [FEW_EPOCHS, ALL_EPOCHS], ids=["few-epochs", "all-epochs"])
@pytest.mark.parametrize("seed", range(30))
@in_loop
async def test_whatever_happens_transactions_keep_their_promises(seed: int, epochs: int) -> None:
    with last_epoch(epochs):
        await TransactionModel(random.Random(seed)).run(400)


@given(chance=st.randoms(use_true_random=False), epochs=st.sampled_from((FEW_EPOCHS, ALL_EPOCHS)))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_short_examples(chance: random.Random, epochs: int) -> None:
    with last_epoch(epochs):
        asyncio.run(TransactionModel(chance).run(60))
