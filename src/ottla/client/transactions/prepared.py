"""A transaction that is prepared: all of its records are acknowledged, and any process can commit or abort it."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.client.errors import ArgumentError, ArgumentTypeError
from ottla.client.transactions.identity import Identity

_NOTHING: Final = -1


class PreparedTransaction(NamedTuple):
    """What another process needs to complete the transaction. `str()` and `parse` convert it to text and back."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

    @classmethod
    def nothing(cls, transactional_id: str) -> PreparedTransaction:
        """A transaction in which nothing was sent: there is nothing to complete."""
        return cls(transactional_id, _NOTHING, _NOTHING)

    @classmethod
    def parse(cls, text: str) -> PreparedTransaction:
        """The transaction that `str()` wrote."""
        if not isinstance(text, str):
            raise ArgumentTypeError(f"text must be a str, not {type(text).__name__}")
        numbers, _, transactional_id = text.partition("/")
        producer_id, _, epoch = numbers.partition(":")
        try:
            return cls(transactional_id, int(producer_id), int(epoch))
        except ValueError:
            hint = "it looks like '4000:7/orders-1': producer id, epoch, transactional id"
            raise ArgumentError(f"{text!r} is not a prepared transaction; {hint}") from None

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}/{self.transactional_id}"

    @property
    def is_empty(self) -> bool:
        """Whether nothing was sent in the transaction."""
        return self.producer_id == _NOTHING

    @property
    def identity(self) -> Identity:
        return Identity(self.producer_id, self.producer_epoch)
