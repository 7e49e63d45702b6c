"""Lets the tests of benches import them: nothing else does."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3]))
