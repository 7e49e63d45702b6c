"""The path of producers whose callers wait for each record: the thread that waits sends the batch itself.

Through the loop, such a record costs two switches of threads, to the loop and back, and while one thread waits for the
other its code leaves the caches. Here the calling thread encodes the batch, writes the request to a connection of its
own, and reads the response: nobody else runs. That is done only if nothing else is unfinished: the batch is the only
one of the producer, its partition's leader knows the producer, and nothing failed before. The loop does all the rest,
and whatever goes wrong here: the batch keeps its sequence number, and the loop sends it again. If the broker has the
batch by then, it recognises it, which is why this needs idempotence.

The batch stays the first of its queue, and is in `Accumulator.full`, like a full batch that a thread encodes: so the
loop leaves it and those after it alone. If it is taken from there, by Ctrl-C, or by a signal handler that waits for the
loop, the loop may have it, and this thread does nothing more with it.

In `send`, a batch would wake the loop if it does not linger. So while callers wait for every record, batches linger for
at least `TICK_S`, and the loop looks that often, until nothing was sent here since its last look, or it sends a batch
itself.
"""

from __future__ import annotations

from math import inf
from struct import Struct
from threading import get_ident
from time import monotonic
from typing import Final, NamedTuple

from ottla.base.error_codes import ErrorCode
from ottla.client.cluster import Cluster
from ottla.client.config import ProducerConfig
from ottla.client.errors import ClientError
from ottla.client.loop_thread import SIGNALS_SEEN_WITHIN_S
from ottla.client.metadata import TopicInfo
from ottla.client.produce.accumulator import Accumulator
from ottla.client.produce.batch import Batch, Outcome
from ottla.client.produce.channel import produce_request
from ottla.client.produce.encoding import Encoder
from ottla.client.produce.queues import PartitionQueue
from ottla.client.transactions.identity import Identity
from ottla.net.blocking_exchange import BlockingExchange
from ottla.net.client_connection import BrokerConnectionError, ClientConnection
from ottla.wire.framing import api_of, read_response, request_frame
from ottla.wire.messages.produce import ProducePartitionResponse, ProduceRequest, ProduceResponse

TICK_S: Final = 0.002
_TIMEOUT_MIN_S: Final = 1.0
"""Callers with a shorter timeout are not served here: when it is over, the connection is lost."""
_BYTES_MAX: Final = 32 * 1024
"""Of a batch: sending more takes so long that a switch of threads does not count."""
_WAITS_MIN: Final = 3
"""How many callers must have waited before a connection is opened for them."""
_REOPEN_AFTER_S: Final = 5.0
_TEMPLATES_MAX: Final = 64
_CORRELATION_ID_BYTES: Final = 4
_OFFSETS: Final = Struct(">qqq")
"""In a response: the offset of the batch, the time at which it was appended or -1, and the log's start offset."""


class _Template(NamedTuple):
    """What is the same in all requests with a batch of one size for a partition: the bytes before it, and after it."""

    info: TopicInfo | None
    version: int
    before: bytes
    after: bytes


class _Shape(NamedTuple):
    """What is the same in all responses that acknowledge a batch of a partition: all but the correlation id, and three
    numbers of eight bytes."""

    size: int
    offsets_at: int
    before: bytes
    after: bytes

    def is_of(self, frame: bytes) -> bool:
        if len(frame) != self.size or not frame.endswith(self.after):
            return False
        return frame.startswith(self.before, _CORRELATION_ID_BYTES)


class FastWait:
    """Belongs to one producer. `send` is for threads, the rest for the loop."""

    def __init__(self, config: ProducerConfig, cluster: Cluster, accumulator: Accumulator, encoder: Encoder) -> None:
        self.wanted: int | None = None
        """A broker to which a connection would be used."""
        self.counts = {"batches": 0, "records": 0, "bytes": 0, "requests": 0}
        self._identity: Identity | None = None
        self._config = config
        self._cluster = cluster
        self._accumulator = accumulator
        self._encoder = encoder
        self._exchanges: dict[int, BlockingExchange] = {}
        self._templates: dict[tuple[PartitionQueue, BlockingExchange, int], _Template] = {}
        self._shapes: dict[tuple[PartitionQueue, BlockingExchange], _Shape] = {}
        self._waits = 0
        self._open_after_s = 0.0
        self._seen = 0
        self._is_closed = False

    @staticmethod
    def suits(config: ProducerConfig) -> bool:
        """Whether a producer with this config can use it."""
        return config.enable_idempotence and config.transactional_id is None and config.retries > 0

    # In the thread that waits.

    def send(self, batch: Batch, timeout_s: float | None) -> bool:
        """Called by a thread that is about to wait for the batch, at most for that time. Returns whether the batch was
        sent and acknowledged; if not, it is up to the loop."""
        if timeout_s is not None and timeout_s < _TIMEOUT_MIN_S:
            return False
        is_sent = False
        try:
            exchange = self._claim(batch)
            if exchange is None:
                return False
            try:
                is_sent = self._exchange(exchange, batch, timeout_s)
            except Exception as error:  # the loop sends it again, and reports what is wrong
                batch.last_error = error
            if is_sent:
                exchange.owner = 0
                if self._is_closed:
                    exchange.close()
                return True
            self._leave_to_loop()
            return False
        except BaseException:
            self._leave_to_loop()
            raise

    def _claim(self, batch: Batch) -> BlockingExchange | None:
        """Closes the batch for this thread, and returns a connection to its leader; None if it does not suit."""
        accumulator, queue, thread = self._accumulator, batch.queue, get_ident()
        with accumulator.lock:
            if len(accumulator.unfinished) != 1 or queue.open is not batch or not queue.is_quiet_for(self._identity):
                return None
            if batch.callbacks or batch.count * batch.record_bytes > _BYTES_MAX or self._encoder.is_heavy(batch):
                return None
            leader_id = self._cluster.known_leader(queue.partition)
            exchange = None if leader_id is None else self._exchanges.get(leader_id)
            if exchange is None:
                self._waits += 1
                if self.wanted is None and self._waits >= _WAITS_MIN and monotonic() >= self._open_after_s:
                    self.wanted = leader_id
                return None
            if exchange.owner:
                return None
            accumulator.close(batch, is_full=True)
            if accumulator.full.get(batch) != thread:  # a signal handler closed it
                return None
            exchange.owner = thread
            return exchange

    def _exchange(self, exchange: BlockingExchange, batch: Batch, timeout_s: float | None) -> bool:
        queue, accumulator = batch.queue, self._accumulator
        patience_s = self._config.request_timeout_ms / 1000
        if timeout_s is not None:
            patience_s = min(patience_s, timeout_s)
        until_s = min(monotonic() + patience_s, batch.deadline_s)
        if not queue.sequences.number_owned(batch, accumulator.full):
            return False
        encoded = self._encoder.encode_signed(batch)
        template = self._template(queue, exchange, encoded)
        batch.attempts = 1
        frame = exchange.ask(template.before, encoded + template.after, until_s)
        outcome = self._outcome(queue, exchange, template.version, frame)
        if outcome is None or not accumulator.settle_full(batch, outcome):
            return False
        counts = self.counts
        counts["batches"] += 1
        counts["requests"] += 1
        counts["records"] += batch.count
        counts["bytes"] += len(encoded)
        return True

    def _template(self, queue: PartitionQueue, exchange: BlockingExchange, encoded: bytearray) -> _Template:
        place = queue, exchange, len(encoded)
        template = self._templates.get(place)
        info = self._cluster.known_topic(queue.partition.topic)
        if template is None or template.info is not info:
            request, version, _ = produce_request(
                self._config, self._cluster, exchange.beside, [(queue.partition, encoded)]
            )
            frame = b"".join(request_frame(request, version, 0, self._config.client_id))
            start = frame.rindex(encoded)
            template = _Template(info, version, frame[:start], frame[start + len(encoded) :])
            if len(self._templates) >= _TEMPLATES_MAX:
                self._templates = {}
            self._templates[place] = template
        return template

    def _outcome(self, queue: PartitionQueue, exchange: BlockingExchange, version: int, frame: bytes) -> Outcome | None:
        """None if the broker refused the batch."""
        shape = self._shapes.get((queue, exchange))
        if shape is not None and shape.is_of(frame):
            base_offset, append_time_ms, _ = _OFFSETS.unpack_from(frame, shape.offsets_at)
            return Outcome(base_offset, append_time_ms)
        answer = _answer_in(frame, version, queue.partition.partition)
        if answer.error_code != ErrorCode.NONE:
            return None
        offsets = _OFFSETS.pack(answer.base_offset, answer.log_append_time_ms, answer.log_start_offset)
        if frame.count(offsets) == 1:  # versions before 5 have no log start offset
            start = frame.index(offsets)
            before, after = frame[_CORRELATION_ID_BYTES:start], frame[start + _OFFSETS.size :]
            if len(self._shapes) >= _TEMPLATES_MAX:
                self._shapes = {}
            self._shapes[queue, exchange] = _Shape(len(frame), start, before, after)
        return Outcome(answer.base_offset, answer.log_append_time_ms)

    def _leave_to_loop(self) -> None:
        """Called if anything went wrong in this thread: a connection that it used is lost, and its batch is sent by the
        loop. Idempotent."""
        thread = get_ident()
        for leader_id, exchange in list(self._exchanges.items()):
            if exchange.owner == thread:
                self._exchanges.pop(leader_id, None)
                exchange.abandon()
        self._accumulator.release_full()

    # In the loop.

    def look(self, now_s: float, identity: Identity | None, *, has_sent: bool) -> float:
        """Called at the end of each look of the sender, with the producer's identity, and whether the sender sent
        anything. Returns when it must look again."""
        self._identity = identity
        count = self.counts["requests"]
        is_used = count != self._seen
        self._seen = count
        self._accumulator.patience_s = TICK_S if is_used and not has_sent else 0.0
        return now_s + TICK_S if is_used else inf

    async def open(self, broker_id: int, beside: ClientConnection) -> None:
        """Opens the connection that is wanted."""
        self._open_after_s = monotonic() + _REOPEN_AFTER_S
        try:
            exchange = await BlockingExchange.open(beside, SIGNALS_SEEN_WITHIN_S)
        except (OSError, BrokerConnectionError):
            return  # the loop's connection will show what is wrong, if anything is
        finally:
            self.wanted = None
        if self._is_closed:
            exchange.close()
        else:
            self._exchanges[broker_id] = exchange

    def close(self) -> None:
        """Ends what threads are doing."""
        with self._accumulator.lock:
            self._is_closed = True
            for exchange in list(self._exchanges.values()):
                exchange.close()
            self._exchanges = {broker_id: one for broker_id, one in self._exchanges.items() if one.owner}


def _answer_in(frame: bytes, version: int, partition: int) -> ProducePartitionResponse:
    """The broker's answer for the partition, the only one of the request."""
    answer = read_response(api_of(ProduceRequest.api_key), version, frame)[1]
    if isinstance(answer, ProduceResponse):
        for topic in answer.responses:
            for one in topic.partition_responses:
                if one.index == partition:
                    return one
    raise ClientError(f"the broker's answer does not mention partition {partition}")
