"""The layout of the memory that the event loop and the sender thread share: see `sender` and `sending_kernel`.

A batch is a row of numbers (`NUMBERS` of them) and a row of `BYTES_MAX` bytes, the answers one after the other.
"""

from __future__ import annotations

from typing import Final

SLOTS: Final = 8
"""The maximum number of batches in progress."""
ANSWERS_MAX: Final = 256
"""The maximum number of answers in a batch."""
BYTES_MAX: Final = 64 * 1024
COUNT: Final = 0
"""The first number of a batch: how many answers it has; -1 ends the thread."""
DESCRIPTORS: Final = 1
SIZES: Final = DESCRIPTORS + ANSWERS_MAX
SENT: Final = SIZES + ANSWERS_MAX
"""The result of `send` for each answer: fewer bytes than its size if the socket accepts no more now."""
NUMBERS: Final = SENT + ANSWERS_MAX
