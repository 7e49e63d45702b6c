"""For all tests: how property tests draw their examples."""

from __future__ import annotations

from hypothesis import settings

from support.examples import DEFAULT, examples

settings.register_profile("suite", max_examples=examples(DEFAULT), deadline=None)
settings.load_profile("suite")
