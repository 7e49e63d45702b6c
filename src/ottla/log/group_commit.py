"""Shared durability: many appends that wait for the disk share one fsync.

A thread takes the logs that have waiting callers, syncs their files once, and notifies all callers that asked before
the sync began. Callers that ask while it runs wait for the next one. So the rate of fsyncs is the disk's, not the
producers'.

`wait_for` is thread-safe; it returns a `concurrent.futures.Future`, which an event loop can await.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future

from ottla.log.partition_log import PartitionLog


class GroupCommit:
    """One thread. `close` finishes earlier requests first."""

    def __init__(self) -> None:
        self._asked: dict[PartitionLog, list[Future[None]]] = {}
        self._wake = threading.Condition()
        self._closed = False
        self.sync_count = 0
        self._thread = threading.Thread(target=self._run, name="ottla-group-commit", daemon=True)
        self._thread.start()

    def wait_for(self, log: PartitionLog, offset: int) -> Future[None]:
        """Done when everything below the offset survives a power cut; fails with the disk's error."""
        answer: Future[None] = Future()
        if offset <= log.recovery_point:
            answer.set_result(None)
            return answer
        with self._wake:
            if self._closed:
                raise RuntimeError("the group commit is closed")
            self._asked.setdefault(log, []).append(answer)
            self._wake.notify()
        return answer

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._asked and not self._closed:
                    self._wake.wait()
                if not self._asked:
                    return
                asked, self._asked = self._asked, {}
            for log, waiting in asked.items():
                self._commit(log, waiting)

    def _commit(self, log: PartitionLog, waiting: list[Future[None]]) -> None:
        # From here on nobody can cancel them; cancelled ones are skipped.
        waiting = [answer for answer in waiting if answer.set_running_or_notify_cancel()]
        try:
            log.flush()
        except BaseException as error:  # whatever it is, callers must not wait forever
            for answer in waiting:
                answer.set_exception(error)
            return
        self.sync_count += 1
        for answer in waiting:
            answer.set_result(None)
