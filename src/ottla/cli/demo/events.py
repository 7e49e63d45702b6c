"""Made-up events of a shop: orders, payments and page views."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Final, NamedTuple

_CUSTOMERS: Final = ("ana", "bo", "chidi", "dagmar", "emil", "fatou", "goran", "hana", "ines", "jun", "kofi", "lena")
_GOODS: Final = {
    "notebook": 4.5,
    "fountain pen": 39.0,
    "ink, blue": 7.2,
    "desk lamp": 58.0,
    "paper clips": 1.9,
    "writing desk": 310.0,
    "typewriter": 189.0,
    "envelope": 0.3,
}
CATALOGUE: Final = {
    "notebook": "paper",
    "fountain pen": "pens",
    "ink, blue": "pens",
    "desk lamp": "furniture",
    "paper clips": "paper",
    "writing desk": "furniture",
    "typewriter": "machines",
    "envelope": "paper",
}
"""The category of each item."""
_CITIES: Final = ("Praha", "Wien", "Berlin", "Lagos", "Osaka", "Lima", "Oslo", "Pune")
_PAGES: Final = ("/", "/pens", "/desks", "/cart", "/checkout", "/letters", "/about", "/offers")
_METHODS: Final = ("card", "card", "transfer", "voucher")


class Event(NamedTuple):
    """An event and its topic."""

    topic: str
    key: str
    body: dict[str, object]

    @property
    def value(self) -> bytes:
        return json.dumps(self.body, ensure_ascii=False, separators=(",", ":")).encode()

    def sentence(self) -> str:
        """One line for display."""
        body = self.body
        match self.topic:
            case "orders":
                return f"{body['customer']} in {body['city']} orders {body['count']} of {body['item']}"
            case "payments":
                how = "declined" if body["status"] == "declined" else f"paid by {body['method']}"
                return f"order {body['order']}: {body['amount']:.2f} € {how}"
        return f"{body['visitor']} looks at {body['page']} for {body['ms']} ms"


class Shop:
    """Generates events; apart from the time of orders, the same ones for the same seed."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)
        self._orders = 1000

    def order(self) -> tuple[Event, Event]:
        """An order made now, and its payment."""
        choose = self._random
        self._orders += 1
        item = choose.choice(list(_GOODS))
        count = choose.choice((1, 1, 1, 2, 3, 5))
        customer = choose.choice(_CUSTOMERS)
        body: dict[str, object] = {
            "order": self._orders,
            "customer": customer,
            "city": choose.choice(_CITIES),
            "item": item,
            "count": count,
            "price": round(_GOODS[item] * count, 2),
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        payment: dict[str, object] = {
            "order": self._orders,
            "amount": body["price"],
            "method": choose.choice(_METHODS),
            "status": "declined" if choose.random() < 0.04 else "paid",
        }
        return Event("orders", customer, body), Event("payments", str(self._orders), payment)

    def page_view(self) -> Event:
        choose = self._random
        visitor = choose.choice(_CUSTOMERS)
        body: dict[str, object] = {
            "visitor": visitor,
            "page": choose.choice(_PAGES),
            "ms": int(choose.lognormvariate(4.5, 0.8)),
            "agent": choose.choice(("firefox", "safari", "chrome", "lynx")),
        }
        return Event("page-views", visitor, body)


def event_of(topic: str, key: bytes | None, value: bytes | None) -> Event:
    """The event in a record."""
    return Event(topic, (key or b"").decode(), json.loads(value or b"{}"))
