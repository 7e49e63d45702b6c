"""Kills what runs stateful operators, and compares their results with a model in plain Python.

Every result must be there once. What depends on how records are divided into micro-batches is compared with all that
it can be: with which version of a user a click was joined.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ottla import Admin, Producer
from ottla.client.administer import NewTopic
from ottla.testing.cluster import Cluster
from support.exactly_once.fire import SETTINGS, Fire
from support.waiting import wait_until

WINDOW_S = 3
_STEP_MS = 1000
_START_MS = 1_700_000_000_000
_LATER_MS = 36_000_000
_CITIES = ("Brno", "Praha", "Wien")
_USERS = [f"u{number}" for number in range(12)]
_ORDERS = [f"o{number}" for number in range(60)]


class Topics(NamedTuple):
    """The first three are read, the others are written."""

    clicks: str
    users: str
    orders: str
    spent: str
    numbered: str
    windows: str


class FireOfStreams(Fire):
    """A query with stateful operators, and the model of its results."""

    FIRST = 160
    MORE = 160
    PATIENCE_S = 600.0
    PARTITIONS = 2

    def __init__(self, cluster: Cluster, directory: Path, seed: int) -> None:
        self._topics = Topics(*(f"{name}-{seed}" for name in Topics._fields))
        compact, kept = {"cleanup.policy": "compact"}, {"retention.ms": "-1"}  # timestamps are those of the model
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics(
                NewTopic(name, self.PARTITIONS, 3, configs=compact if name in self._topics[1:3] else kept)
                for name in self._topics
            )
        self._clicks: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self._cities: dict[str, list[str]] = {user: ["none"] for user in _USERS}
        self._orders_now: dict[str, tuple[str, int]] = {}
        self._sent = 0
        super().__init__(cluster, directory, seed, "support.exactly_once.streams_job", {"topics": self._topics})

    def send(self, count: int) -> None:
        """Clicks, orders and changes of users, all with tombstones."""
        dice, topics = self._dice, self._topics
        with Producer({"bootstrap.servers": self._cluster.bootstrap, **SETTINGS}) as producer:

            def put(topic: str, key: str, value: str | None) -> None:
                at_ms = _START_MS + self._sent * _STEP_MS
                producer.send(topic, None if value is None else value.encode(), key=key.encode(), timestamp=at_ms)

            for _ in range(count):
                self._sent += 1
                user, kind = dice.choice(_USERS), dice.random()
                if kind < 0.6:
                    self._clicks[user].append((f"c{self._sent}", _START_MS + self._sent * _STEP_MS))
                    put(topics.clicks, user, f"c{self._sent}")
                elif kind < 0.85:
                    order = dice.choice(_ORDERS)
                    self._orders_now.pop(order, None)
                    if dice.random() < 0.8:
                        self._orders_now[order] = user, dice.randrange(1, 100)
                    put(topics.orders, order, " ".join(map(str, self._orders_now.get(order, ()))) or None)
                else:
                    city = "none" if dice.random() < 0.25 else f"{dice.choice(_CITIES)}-{self._sent}"
                    self._cities[user].append(city)
                    put(topics.users, user, None if city == "none" else city)

    def _settle(self) -> None:
        sent = sum(map(len, self._clicks.values()))
        self._wait_until(lambda: sum(map(len, self.numbered().values())) >= sent, "clicks")
        self._wait_until(lambda: self.spent() == self.expected_spent, "totals")
        with Producer({"bootstrap.servers": self._cluster.bootstrap, **SETTINGS}) as producer:
            later_ms = _START_MS + self._sent * _STEP_MS + _LATER_MS
            producer.send(self._topics.clicks, b"end", key=b"end", timestamp=later_ms)
        self._wait_until(lambda: self.windows() == self.expected_windows, "windows")
        self.advance(0)

    def _wait_until(self, is_done: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            self.job.ensure()
            if is_done():
                return True
            time.sleep(0.5)
            return False

        wait_until(look, f"all {what}\n{self.last_words()}", self.PATIENCE_S)

    # What was written.

    def _texts(self, topic: str) -> list[tuple[str, str]]:
        return [((key or b"").decode(), (value or b"").decode()) for key, value in self.values(topic)]

    def spent(self) -> dict[str, int]:
        """By city, without those where nothing was spent."""
        found = {key: int(value or "0") for key, value in self._texts(self._topics.spent)}
        return {city: amount for city, amount in found.items() if amount}

    def numbered(self) -> dict[str, list[list[str]]]:
        """By user, in order: number, click, version of the user, number in that city."""
        found: dict[str, list[list[str]]] = defaultdict(list)
        for user, text in self._texts(self._topics.numbered):
            found[user].append(text.split())
        return found

    def windows(self) -> Counter[tuple[str, str]]:
        return Counter(self._texts(self._topics.windows))

    # The model.

    @property
    def expected_spent(self) -> dict[str, int]:
        totals: Counter[str] = Counter()
        for user, amount in self._orders_now.values():
            city = self._cities[user][-1].partition("-")[0]
            if city != "none":
                totals[city] += amount
        return dict(totals)

    @property
    def expected_windows(self) -> Counter[tuple[str, str]]:
        """Each once."""
        size_ms = WINDOW_S * 1000
        found: dict[str, str] = {}
        for user, clicks in self._clicks.items():
            times = [at_ms for _, at_ms in clicks]
            for start_ms in {start for at_ms in times for start in (at_ms - size_ms, at_ms + 1)}:
                within = sum(start_ms <= at_ms <= start_ms + size_ms for at_ms in times)
                if within:
                    found[f"{user} {start_ms}"] = str(within)
        return Counter(found.items())

    def check(self) -> None:
        assert self.spent() == self.expected_spent
        assert self.windows() == self.expected_windows
        numbered = self.numbered()
        numbered.pop("end", None)
        assert numbered.keys() == self._clicks.keys()
        for user, rows in numbered.items():
            assert [row[:2] for row in rows] == [
                [str(number), click] for number, (click, _) in enumerate(self._clicks[user], 1)
            ]
            by_city: Counter[str] = Counter()
            versions = iter(self._cities[user])
            version = next(versions)
            for _, _, city, number in rows:
                while version != city:  # ends with an error if it never was so, or not any more
                    version = next(versions)
                by_city[city] += 1
                assert int(number) == by_city[city]
