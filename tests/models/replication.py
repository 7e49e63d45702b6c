"""Replication as a whole, step by step: leaders, followers and their ISR under losses, restarts and elections.

Real are: partitions with their logs on a simulated disk, the follower's core, the ISR proposals. The model brings the
leader's fetch handler (`LeaderSide`), a controller that elects cleanly, and the network: it loses requests and answers,
answers requests of dead connections late, delivers roles late, twice or again, kills processes and cuts the power.

Promises, checked after each step:

1. What was below a leader's high watermark never changes, and no other record ever has its offset, until it is deleted
   (DeleteRecords): a crash may bring deleted records back.
2. Every in-sync replica, as the controller knows them, has all of it; so has every leader that the controller elects.
3. An acknowledged record is part of it.
4. A replica's log start ≤ high watermark ≤ log end; what a follower has below its high watermark is committed.
5. Each replica's epochs are those of its batches.
6. When the faults end, all logs become equal, all replicas join the ISR, and all high watermarks reach the end.

Power is cut everywhere, also at once, if the topic is flushed (`flush.messages=1`). If it is not, what was only in
memory is lost: that is survived by promise only while another in-sync replica lives, so power is cut only then.

More seeds: `python -m models.replication 1000` (in tests/).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from models.replication_controller import ModelController
from models.step_loop import StepLoop
from ottla.base.ids import TopicPartition, Uuid
from ottla.log.config import LogConfig
from ottla.replication.errors import ReplicationError
from ottla.replication.fetching.fast_rounds import RequestTemplate
from ottla.replication.fetching.fetcher_core import FetcherCore, FetchStats
from ottla.replication.fetching.followed import Followed
from ottla.replication.fetching.replication_quota import ReplicationQuota
from ottla.replication.fetching.settings import FetchSettings
from ottla.replication.isr_changes import IsrChanges
from ottla.replication.partition import AwaitedAppend
from ottla.replication.role import NO_LEADER, PartitionRole
from ottla.testing.manual_clock import ManualClock
from ottla.testing.simulated_disk import SimulatedDisk
from ottla.wire.framing import SIZE_BYTES, read_request
from ottla.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from ottla.wire.peer import PeerError
from ottla.wire.schema import Request, Response
from support.replication.following import through_wire
from support.replication.leader_side import LeaderSide
from support.replication.simulated_replica import SimulatedReplica, batch

NAME = TopicPartition("orders", 0)
ID = Uuid(b"topic-id-of-orde")
BROKERS = (1, 2, 3)
LAG_MAX_S = 1.0

Batch = tuple[int, int, int]
"""Last offset, epoch, CRC."""


@dataclass(eq=False)
class InFlight:
    """A request on its way to a leader, or its answer on the way back."""

    request: Request
    leader: int
    leader_epoch: int
    """The broker epoch of the process that it is connected to."""
    response: Response | None = None


@dataclass
class Ask:
    """A proposal on its way to the controller, or the answer on the way back."""

    request: AlterPartitionRequest
    future: asyncio.Future[AlterPartitionResponse]
    response: AlterPartitionResponse | None = None


class Node:
    """One process of a broker."""

    def __init__(self, model: ReplicationModel, replica: SimulatedReplica, epoch: int) -> None:
        self.model = model
        self.id = replica.broker_id
        self.replica = replica
        self.epoch = epoch
        self.partition = replica.host(NAME, ID, model.config)
        self.side = LeaderSide(replica.partitions, model.fetch_version)
        self.side.max_bytes = model.max_bytes
        self.stats = FetchStats()
        self.core: FetcherCore | None = None
        self.in_flight: InFlight | None = None
        self.awaited: list[tuple[AwaitedAppend, int]] = []
        self.checked: object = None
        self.asks: list[Ask] = []
        self.isr_changes = IsrChanges(self._ask, self.id, lambda: epoch, model.loop)
        environment = replica.environment
        environment.lag_max_s = LAG_MAX_S
        environment.propose = self.isr_changes.propose
        environment.is_alive = lambda broker: broker in model.controller.alive

    async def _ask(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        ask = Ask(request, self.model.loop.create_future())
        self.asks.append(ask)
        return await ask.future

    def take_role(self, role: PartitionRole) -> None:
        """What a broker does with LeaderAndIsr."""
        partition = self.partition
        if role.leader_epoch <= partition.leader_epoch:
            return
        if role.leader == self.id:
            if partition.must_flush and partition.log is not None:
                partition.log.flush()
            partition.lead(role, self.model.clock.monotonic_s())
            self.core = self.in_flight = None
            return
        partition.follow(role)
        if self.core is not None and self.core.leader_id == role.leader:
            self.core.remove(NAME)  # the same connection goes on, with an answer under way
        else:
            self.core = self.in_flight = None
        if role.leader != NO_LEADER:
            if self.core is None:
                quota = ReplicationQuota(self.model.clock.monotonic_s)
                settings = FetchSettings()
                self.core = FetcherCore(role.leader, self.id, lambda: self.epoch, settings, quota, self.stats)
            self.core.add(Followed(partition))

    def stop(self) -> None:
        """The process is gone, and with it what it waited for."""
        self.model.loop.create_task(self.isr_changes.close())
        self.core = self.in_flight = None

    def batches(self) -> dict[int, Batch]:
        """By their first offsets."""
        log = self.partition.log
        assert log is not None
        return {
            header.base_offset: (header.last_offset, header.leader_epoch, header.crc)
            for segment in log.segments
            for _, header in segment.iter_headers()
            if header.last_offset >= log.log_start_offset
        }


class PromiseBrokenError(AssertionError):
    """A promise that does not hold."""


@dataclass
class Counters:
    """What happened, to see that a model does something."""

    acknowledged: int = 0
    elections: int = 0
    truncations: int = 0
    kills: int = 0
    cuts: int = 0
    resets: int = 0
    isr_changes: int = 0
    fast_requests: int = 0
    fast_answers: int = 0


@dataclass
class Committed:
    """Everything that was below a leader's high watermark."""

    batches: dict[int, Batch] = field(default_factory=dict)
    end: int = 0


class ReplicationModel:
    """See the module."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        draw = self.random
        self.seed = seed
        self.is_flushed = draw.random() < 0.4
        self.fetch_version = draw.choice((17, 17, 17, 12, 11))
        self.max_bytes = draw.choice((90, 250, 100_000))
        self.is_fast = self.fetch_version >= 15 and draw.random() < 0.7
        """Whether followers take the fast path where they can."""
        self.config = LogConfig(
            segment_bytes=draw.choice((300, 2**20)),
            min_insync_replicas=draw.choice((1, 2, 2)),
            flush_messages=1 if self.is_flushed else 2**63 - 1,
        )
        self.clock = ManualClock()
        self.loop = StepLoop()
        self.controller = ModelController(BROKERS)
        self.committed = Committed()
        self.counters = Counters()
        self.nodes: dict[int, Node] = {}
        self.dead: dict[int, SimulatedReplica] = {}
        self.news: list[Callable[[], None]] = []
        """What the controller has not noticed yet, in order."""
        self.sent: list[tuple[int, int, PartitionRole]] = []
        """Roles that were delivered, for duplicates."""
        self.ghosts: list[InFlight] = []
        """Requests of connections that broke: the leader may still handle them."""
        self.highest_start = 0
        self.value = 0
        self.broker_epoch = 0
        self.history: list[str] = []
        for broker in BROKERS:
            disk = SimulatedDisk(seed=draw.randrange(2**32))
            self._start(SimulatedReplica(broker, self.loop, self.clock, disk=disk))
        self._notice_all()

    # --- processes --------------------------------------------------------------------------------------------------

    def _start(self, replica: SimulatedReplica) -> None:
        self.broker_epoch += 1
        broker, epoch = replica.broker_id, self.broker_epoch
        self.nodes[broker] = Node(self, replica, epoch)
        self.news.append(lambda: self.controller.started(broker, epoch))

    def _stop(self, node: Node) -> None:
        node.stop()
        del self.nodes[node.id]
        self.dead[node.id] = node.replica
        self.news.append(lambda: self.controller.failed(node.id))
        for other in self.nodes.values():
            if other.in_flight is not None and other.in_flight.leader == node.id:
                self._lose(other)

    def kill(self) -> None:
        """Memory is gone, the system's page cache is not."""
        node = self._any_node()
        if node is not None:
            self.counters.kills += 1
            self._stop(node)

    def cut_power(self) -> None:
        node = self._any_node()
        if node is None or not self._survives_loss_of(node):
            return
        self.counters.cuts += 1
        self._stop(node)
        node.replica.disk.restart()
        if not self.is_flushed:
            self._notice_all()

    def cut_all_power(self) -> None:
        """In the whole building."""
        if self.is_flushed:
            for node in self.random.sample(sorted(self.nodes.values(), key=lambda node: node.id), len(self.nodes)):
                self.counters.cuts += 1
                self._stop(node)
                node.replica.disk.restart()

    def _survives_loss_of(self, node: Node) -> bool:
        if self.is_flushed:
            return True
        if self.fetch_version < 15:
            return (
                False  # a leader cannot tell fetches of two processes apart (KIP-903), and lets one join for the other
            )
        role = self.controller.role
        others = [each for each in role.isr if each != node.id and each in self.nodes]
        return node.id not in role.isr or any(
            self.controller.alive.get(each) == self.nodes[each].epoch for each in others
        )

    def restart(self) -> None:
        if self.dead:
            broker = self.random.choice(sorted(self.dead))
            self._start(self.dead.pop(broker).restarted())

    # --- the controller ---------------------------------------------------------------------------------------------

    def notice(self) -> None:
        """The controller handles the next event."""
        if self.news:
            leader = self.controller.role.leader
            self.news.pop(0)()
            self.counters.elections += self.controller.role.leader not in (leader, NO_LEADER)

    def _notice_all(self) -> None:
        while self.news:
            self.notice()

    def move_leader(self) -> None:
        if not self.news:
            self.controller.move_leader(self.random.choice(BROKERS))

    def deliver_role(self) -> None:
        """The next role for some broker; in order for each."""
        outbox = self.controller.outbox
        if outbox:
            broker = self.random.choice(outbox)[0]
            message = next(each for each in outbox if each[0] == broker)
            outbox.remove(message)
            self.sent.append(message)
            self._give_role(message)

    def repeat_role(self) -> None:
        if self.sent:
            self._give_role(self.random.choice(self.sent))

    def _give_role(self, message: tuple[int, int, PartitionRole]) -> None:
        broker, epoch, role = message
        node = self.nodes.get(broker)
        if node is not None and node.epoch == epoch:  # otherwise STALE_BROKER_EPOCH
            node.take_role(role)

    def propose(self) -> None:
        """A proposal reaches the controller, or its answer the leader, or either is lost."""
        asks = [(node, ask) for node in self.nodes.values() for ask in node.asks]
        if not asks:
            return
        node, ask = self.random.choice(asks)
        if self.random.random() < 0.2:
            node.asks.remove(ask)
            if not ask.future.done():
                ask.future.set_exception(PeerError("lost"))
        elif ask.response is None:
            before = self.controller.role.isr
            ask.response = self.controller.alter_partition(ask.request)
            self.counters.isr_changes += self.controller.role.isr != before
        else:
            node.asks.remove(ask)
            if not ask.future.done():
                ask.future.set_result(ask.response)

    # --- clients and time -------------------------------------------------------------------------------------------

    def produce(self) -> None:
        """To any broker that believes to lead."""
        leaders = [node for node in self.nodes.values() if node.partition.is_leader]
        if not leaders:
            return
        node = self.random.choice(leaders)
        values = []
        for _ in range(self.random.randint(1, 3)):
            self.value += 1
            values.append(b"%d" % self.value)
        is_all = self.random.random() < 0.8
        try:
            info = node.partition.append(batch(*values), all_replicas=is_all)
        except ReplicationError:
            return
        awaited = AwaitedAppend(info.last_offset + 1, node.partition.leader_epoch, all_replicas=True)
        if is_all:
            node.awaited.append((awaited, info.first_offset))

    def delete_records(self) -> None:
        for node in self.nodes.values():
            log = node.partition.log
            if node.partition.is_leader and log is not None and log.high_watermark > log.log_start_offset:
                node.partition.delete_records(self.random.randint(log.log_start_offset, log.high_watermark))

    def pass_time(self) -> None:
        self.advance_ms(self.random.choice((5, 20, 100, 500)))

    def advance_ms(self, duration_ms: int) -> None:
        self.clock.advance_ms(duration_ms)
        self.loop.advance(duration_ms / 1000)
        for node in self.nodes.values():
            node.side.now_s = self.clock.monotonic_s()

    def shrink(self) -> None:
        for node in self.nodes.values():
            node.partition.shrink_isr(self.clock.monotonic_s(), LAG_MAX_S)

    # --- the disk ---------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        node = self._any_node()
        if node is not None:
            node.replica.sync()

    def flush(self) -> None:
        node = self._any_node()
        if node is not None and node.partition.log is not None:
            node.partition.log.flush()
            if self.random.random() < 0.5:
                node.replica.checkpoint()

    # --- fetching ---------------------------------------------------------------------------------------------------

    def ask(self) -> None:
        node = self._any_node(lambda node: node.core is not None and node.in_flight is None)
        if node is not None:
            self._ask(node)

    def _ask(self, node: Node) -> bool:
        core = node.core
        leader = None if core is None else self.nodes.get(core.leader_id)
        if core is None or self.clock.monotonic_s() < core.retry_at_s:
            return False
        if leader is None:
            core.lost(self.clock.monotonic_s())
            return False
        request = self._fast_request(core) or core.next_request(self.clock.monotonic_s(), self.fetch_version)
        if request is not None:
            node.in_flight = InFlight(request, leader.id, leader.epoch)
        return request is not None

    def _fast_request(self, core: FetcherCore) -> FetchRequest | None:
        """As `fast_rounds` asks."""
        asked = core.one_to_ask(self.clock.monotonic_s()) if self.is_fast else None
        if asked is None:
            return None
        self.counters.fast_requests += 1
        followed, _, session = asked
        settings, epoch = FetchSettings(), core.broker_epoch()
        template = RequestTemplate(followed, session, core.broker_id, epoch, self.fetch_version, settings, "model")
        frame = template.filled(*asked[:2], session.epoch)
        request = read_request(bytes(frame[SIZE_BYTES:])).request
        assert isinstance(request, FetchRequest)
        return request

    def answer(self) -> None:
        """The leader handles a request."""
        node = self._any_node(lambda node: node.in_flight is not None and node.in_flight.response is None)
        if node is not None and node.in_flight is not None:
            self._answer(node.in_flight)

    def _answer(self, flight: InFlight) -> None:
        leader = self.nodes.get(flight.leader)
        if leader is not None and leader.epoch == flight.leader_epoch:
            version = self.fetch_version  # this topic has an id
            flight.response = through_wire(leader.side, flight.request, version)

    def take(self) -> None:
        """A follower gets an answer."""
        node = self._any_node(lambda node: node.in_flight is not None and node.in_flight.response is not None)
        if node is not None:
            self._take(node)

    def _take(self, node: Node) -> None:
        flight, node.in_flight = node.in_flight, None
        log = node.partition.log
        if flight is None or flight.response is None or node.core is None or log is None:
            return
        end, start = log.next_offset, log.log_start_offset
        if not (self.is_fast and self._take_fast(node.core, flight.response)):
            for _ in node.core.answered(flight.request, flight.response, self.clock.monotonic_s()):
                pass
        self.counters.truncations += log.next_offset < end
        self.counters.resets += log.log_start_offset > start and log.log_start_offset >= end

    def _take_fast(self, core: FetcherCore, response: Response) -> bool:
        """As `fast_rounds` takes an answer."""
        if not isinstance(response, FetchResponse) or response.error_code or len(response.responses) != 1:
            return False
        topic = response.responses[0]
        answer = topic.partitions[0]
        if answer.error_code or answer.diverging_epoch is not None or not answer.records:
            return False
        followed = core.one_answered(response.session_id, topic.topic_id, answer.partition_index)
        if followed is None:
            return False
        self.counters.fast_answers += 1
        now_s = self.clock.monotonic_s()
        core.take_one(followed, answer.records, answer.high_watermark, answer.log_start_offset, now_s)
        return True

    def lose(self) -> None:
        node = self._any_node(lambda node: node.in_flight is not None)
        if node is not None:
            self._lose(node)

    def _lose(self, node: Node) -> None:
        flight, node.in_flight = node.in_flight, None
        if flight is not None and flight.response is None:
            self.ghosts.append(flight)
        if node.core is not None:
            node.core.lost(self.clock.monotonic_s())

    def handle_ghost(self) -> None:
        """A leader handles a request late; nobody waits for the answer."""
        if self.ghosts:
            self._answer(self.ghosts.pop(self.random.randrange(len(self.ghosts))))

    def _any_node(self, which: Callable[[Node], bool] = lambda _: True) -> Node | None:
        nodes = [node for _, node in sorted(self.nodes.items()) if which(node)]
        return self.random.choice(nodes) if nodes else None

    # --- runs -------------------------------------------------------------------------------------------------------

    def run(self, steps: int) -> Counters:
        weights: dict[Callable[[], None], float] = {
            self.produce: 10,
            self.ask: 30,
            self.answer: 30,
            self.take: 30,
            self.lose: 2,
            self.handle_ghost: 2,
            self.notice: 8,
            self.deliver_role: 12,
            self.repeat_role: 1,
            self.propose: 12,
            self.pass_time: 8,
            self.shrink: 3,
            self.sync: 12 if self.is_flushed else 0,
            self.flush: 1,
            self.kill: self.random.choice((0.3, 1.5)),
            self.cut_power: self.random.choice((0.0, 0.3, 1.5)),
            self.cut_all_power: self.random.choice((0.0, 0.5)),
            self.restart: 4,
            self.move_leader: self.random.choice((0.5, 3)),
            self.delete_records: self.random.choice((0.1, 2)),
        }
        events, chances = list(weights), list(weights.values())
        try:
            for _ in range(steps):
                event = self.random.choices(events, chances)[0]
                self.history.append(event.__name__)
                self._do(event)
            self.heal()
        except (PromiseBrokenError, AssertionError) as error:
            last = ", ".join(self.history[-30:])
            raise PromiseBrokenError(f"seed {self.seed}, step {len(self.history)} (…, {last}): {error}") from error
        finally:
            self.close()
        return self.counters

    def _do(self, event: Callable[[], None]) -> None:
        event()
        self.loop.turn(2)
        if self.loop.failures:
            raise PromiseBrokenError(f"a callback failed: {self.loop.failures[0]}")
        self.check()

    def heal(self) -> None:
        """Everything comes back; promise 6."""
        while self.dead:
            self._do(self.restart)
        self._do(self._notice_all)
        for turn in range(400):
            while self.controller.outbox:
                self._do(self.deliver_role)
            for node in list(self.nodes.values()):
                if node.in_flight is None:
                    self._ask(node)
                if node.in_flight is not None:
                    self._answer(node.in_flight)
                    self._do(lambda node=node: self._take(node))  # type: ignore[misc]
                self._do(node.replica.sync)
                for ask in list(node.asks):
                    node.asks.remove(ask)
                    if not ask.future.done():
                        ask.future.set_result(self.controller.alter_partition(ask.request))
            self._do(lambda: self.advance_ms(50))
            if turn > 5 and self._is_healed():
                return
        states = {node.id: (node.partition, node.batches(), node.stats.failed) for node in self.nodes.values()}
        raise PromiseBrokenError(f"the cluster does not recover: {self.controller.role}, {states}")

    def _is_healed(self) -> bool:
        role = self.controller.role
        leader = self.nodes.get(role.leader)
        if leader is None or set(role.isr) != set(BROKERS) or leader.partition.log is None:
            return False
        log = leader.partition.log
        start = self.highest_start
        wanted = {base: each for base, each in leader.batches().items() if each[0] >= start}
        return all(
            node.partition.high_watermark == log.next_offset
            and node.partition.log is not None
            and node.partition.log.log_start_offset >= log.log_start_offset
            and {base: each for base, each in node.batches().items() if each[0] >= start} == wanted
            for node in self.nodes.values()
        )

    def close(self) -> None:
        for node in self.nodes.values():
            node.stop()
        self.loop.turn(5)
        self.loop.close()

    # --- promises ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        for node in sorted(self.nodes.values(), key=lambda node: not node.partition.is_leader):
            log = node.partition.log
            if log is None:
                raise PromiseBrokenError(f"broker {node.id} lost its log: {node.replica.failures}")
            is_in_sync = node.id in self.controller.role.isr
            state = (
                *(log.next_offset, log.high_watermark, log.log_start_offset, log.epochs.entries),
                *(node.partition.leader_epoch, node.partition.is_leader, is_in_sync, self.committed.end),
            )
            if state != node.checked:
                self._check_node(node, is_in_sync=is_in_sync)
                node.checked = state
            self._check_acknowledged(node)

    def _check_node(self, node: Node, *, is_in_sync: bool) -> None:
        log = node.partition.log
        assert log is not None
        who, end, mark, start = f"broker {node.id}", log.next_offset, log.high_watermark, log.log_start_offset
        if not start <= mark <= end:
            raise PromiseBrokenError(f"{who}: start {start}, high watermark {mark}, end {end}")
        self.highest_start = max(self.highest_start, start)
        batches, committed = node.batches(), self.committed
        for base, found in batches.items():
            # A log start that was not written down is forgotten by a restart, the epochs before it may be.
            if base >= self.highest_start and log.epochs.epoch_for_offset(base) != found[1]:
                raise PromiseBrokenError(f"{who}: epochs {log.epochs.entries}, but {found} at {base}")
            known = committed.batches.get(base)
            if found[0] < mark:
                if known is None and node.partition.is_leader:
                    if base < committed.end:
                        raise PromiseBrokenError(f"{who}: {found} at {base} is new below {committed.end}")
                    committed.batches[base] = found
                    committed.end = found[0] + 1
                elif known != found and found[0] >= self.highest_start:
                    raise PromiseBrokenError(f"{who}: {found} at {base} below its high watermark, not {known}")
        if is_in_sync and not self._is_behind_controller(node):
            for base, known in committed.batches.items():
                if known[0] >= max(start, self.highest_start) and batches.get(base) != known:
                    raise PromiseBrokenError(f"{who} is in sync with {batches.get(base)} at {base}, not {known}")

    def _is_behind_controller(self, node: Node) -> bool:
        """Whether the ISR is about an earlier process, which the controller does not know to be gone yet."""
        return self.controller.alive.get(node.id) != node.epoch and not self.is_flushed

    def _check_acknowledged(self, node: Node) -> None:
        waiting = []
        for append, base in node.awaited:
            outcome = node.partition.outcome(append)
            if outcome is None:
                waiting.append((append, base))
            elif not outcome:
                self.counters.acknowledged += 1
                found = self.committed.batches.get(base)
                if found is None or found[0] != append.end - 1 or found[1] != append.leader_epoch:
                    log = node.partition.log
                    if log is None or base >= log.log_start_offset:
                        raise PromiseBrokenError(f"acknowledged at {base} in epoch {append.leader_epoch}: {found}")
        node.awaited = waiting


def main() -> None:
    """Runs as many seeds as the first argument says."""
    import logging

    logging.disable(logging.CRITICAL)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    total = Counters()
    for seed in range(first, first + count):
        counters = ReplicationModel(seed).run(600)
        for name in total.__dataclass_fields__:
            setattr(total, name, getattr(total, name) + getattr(counters, name))
    print(total)  # noqa: T201


if __name__ == "__main__":
    main()
