"""What mypyc is told where some modules are compiled: see docs/decisions/0014.

Those modules are ordinary Python, and import nothing of the compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**_attributes):
        """Does nothing: the compiler reads the arguments in the source."""
        return lambda kind: kind
