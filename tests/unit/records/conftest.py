"""kafka-python, an oracle of these tests, uses deprecated functions of the standard library when it is imported."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message=r"(read|open)_text is deprecated", category=DeprecationWarning)
    import kafka  # noqa: F401  # imported for the import alone
