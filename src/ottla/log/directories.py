"""The log directories of a broker: which partitions are where, what is stored about them between runs, and failures.

A directory is locked while it is open, so that two brokers never share it. It fails as a whole: an `OSError` on any of
its files takes all its replicas offline, and the other directories continue. `checkpoint` stores recovery points, start
offsets and high watermarks next to the logs; without them a start only takes longer.

Owned by the broker's thread. `open` loads logs in threads, one directory after the other; nothing else here is
thread-safe.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Final

from ottla.base.clock import Clock, passed_ms
from ottla.base.disk import Disk, Lock, is_full
from ottla.base.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.log import names
from ottla.log.checkpoints import CleanShutdownFile, MetaProperties
from ottla.log.config import LogConfig
from ottla.log.directory_checkpoints import DirectoryCheckpoints
from ottla.log.directory_reserve import DirectoryReserve
from ottla.log.discarded_logs import DiscardedLog, DiscardedLogs, marked_folder
from ottla.log.errors import DirectoryLockedError, FileError, LogDirectoryError, LogError
from ottla.log.loader import LoadOptions, load
from ottla.log.new_logs import NewLog, NewLogs, make_log
from ottla.log.partition_log import PartitionLog
from ottla.log.replica_move import ReplicaMove, relocate
from ottla.log.segment import Segment
from ottla.records.errors import RecordError

_logger = logging.getLogger(__name__)

_CLOSED: Final = (errno.ENOENT, errno.EBADF, errno.EINVAL, errno.ESPIPE, errno.EISDIR)
"""Errors of an operation on a log whose files were renamed, removed or closed in the meantime. A thread may still use a
descriptor that now belongs to a connection or a directory: those cannot be synced or read at a position."""

ConfigOf = Callable[[TopicPartition], LogConfig]
TopicIdOf = Callable[[TopicPartition], Uuid | None]
Task = Callable[[], None]
"""Work for a thread, because it syncs. Raises `OSError`."""
_LOADED_AT_ONCE: Final = 16
"""The number of partitions that a thread takes at a time: passing on each alone would cost as much as loading it."""


@dataclass(frozen=True, slots=True)
class DirectoryOptions:
    """What a broker says about itself, and how it opens its directories."""

    broker_id: int
    cluster_id: str | None = None
    recovery_threads_per_directory: int = 1
    reserve_bytes: int = 0
    """Space reserved in each directory for a stop and a start on a full disk."""
    producer_id_expiration_ms: int = 86_400_000


@dataclass(slots=True)
class LogDirectory:
    """One directory. `failure` is the reason why it is offline."""

    path: Path
    checkpoints: DirectoryCheckpoints
    reserve: DirectoryReserve
    lock: Lock | None = None
    logs: dict[TopicPartition, PartitionLog] = field(default_factory=dict)
    failure: str | None = None
    refused: dict[TopicPartition, str] = field(default_factory=dict)
    """Partitions in this directory whose logs could not be opened, with the reason."""
    removable: list[Segment] = field(default_factory=list)
    """Closed segments of its logs whose files must be removed."""


@dataclass(frozen=True, slots=True, eq=False)
class Deletion:
    """What is left to do for partitions that were removed from a directory."""

    directory: LogDirectory
    _logs: Sequence[DiscardedLog]
    _discarded: DiscardedLogs
    _disk: Disk

    def rename(self) -> None:
        """Any thread. Gives the folders the names of deleted ones; raises `OSError`."""
        self._discarded.rename(self._logs)
        self._disk.sync_directory(self.directory.path)

    def keep(self) -> list[TopicPartition]:
        """After the directory has failed: it still has the folders that were not renamed, and may come back with
        them. Returns their partitions, which are known again, but not served."""
        kept = self._discarded.take_back(self._logs)
        self.directory.logs.update((log.partition, log) for log in kept)
        return [log.partition for log in kept]


class LogDirectories:
    """See the module docstring. Call `open` first, and `close` for a clean stop."""

    def __init__(self, disk: Disk, clock: Clock, paths: Sequence[Path], options: DirectoryOptions) -> None:
        if not paths:
            raise ValueError("a broker needs at least one log directory (log.dirs)")
        self.disk = disk
        self.clock = clock
        self.options = options
        self.directories = [
            LogDirectory(path, DirectoryCheckpoints(disk, path), DirectoryReserve(disk, path, options.reserve_bytes))
            for path in paths
        ]
        self.on_failure: Callable[[LogDirectory], None] = lambda _: None
        self.moves: dict[TopicPartition, ReplicaMove] = {}
        """Replicas that are moving to another directory. A move that is no longer here was cancelled."""
        self._discarded = DiscardedLogs(disk)

    # --- open and close ---------------------------------------------------------------------------------------------

    def open(self, config_of: ConfigOf, topic_id_of: TopicIdOf = lambda _: None) -> None:
        """Locks and loads every directory. A directory that cannot be used is offline from the start; if none can be
        used, the last reason is raised. Raises if a directory is used by another process, or belongs to another broker.
        `topic_id_of` returns the current id of a partition's topic, if it is known."""
        try:
            for directory in self.directories:
                with self._guarded(directory, even_if_full=True):
                    self._claim(directory)
            for directory in self.online():
                with self._guarded(directory, even_if_full=True):
                    self._load(directory, config_of)
                    directory.reserve.fill()
            self._settle_duplicates(topic_id_of)
            self.check_any_left()
        except BaseException:
            self._release_locks()
            raise

    def _release_locks(self) -> None:
        for directory in self.directories:
            if directory.lock is not None:
                directory.lock.release()
                directory.lock = None

    def _claim(self, directory: LogDirectory) -> None:
        path = directory.path
        self.disk.make_directory(path)
        try:
            directory.lock = self.disk.lock(path / names.LOCK)
        except BlockingIOError:
            reason = "another process uses this log directory; stop it, or choose another one (log.dirs, --data-dir)"
            raise DirectoryLockedError(path, reason) from None
        meta_path = path / names.META_PROPERTIES
        meta = MetaProperties.read(self.disk, meta_path)
        options = self.options
        if meta is None:
            if any(names.parse_partition_folder(name) is not None for name in self.disk.list(path)):
                what = "it was missing beside partitions, and is written again for broker %d of cluster %s"
                _logger.warning(f"%s: {what}", meta_path, options.broker_id, options.cluster_id)
            MetaProperties(broker_id=options.broker_id, cluster_id=options.cluster_id).write(self.disk, meta_path)
            return
        if meta.broker_id is not None and meta.broker_id != options.broker_id:
            reason = f"the directory belongs to broker {meta.broker_id}, this is broker {options.broker_id}"
            remedy = "leave broker.id out to use the id of the directory, or use another log directory"
            raise FileError(meta_path, f"{reason}; {remedy}")
        if meta.cluster_id and options.cluster_id and meta.cluster_id != options.cluster_id:
            reason = f"the directory belongs to cluster {meta.cluster_id}, this is cluster {options.cluster_id}"
            remedy = "check log.dirs and zookeeper.connect (without it, ottla.tree.file), or use another log directory"
            raise FileError(meta_path, f"{reason}; {remedy}")

    def _load(self, directory: LogDirectory, config_of: ConfigOf) -> None:
        path = directory.path
        marker = CleanShutdownFile(self.disk, path)
        clean = marker.is_whole()
        if not clean and marker.exists():
            _logger.warning("%s is damaged: the logs are checked as after an unclean stop", marker.path)
        changed = marker.changed_checkpoints()

        def read(name: str) -> dict[TopicPartition, int]:
            if name in changed:
                _logger.warning("%s: it is not what the clean stop left, and is not used", path / name)
                return {}
            return directory.checkpoints.read(name)

        recovery_points = read(names.RECOVERY_POINTS)
        start_offsets = read(names.LOG_START_OFFSETS)
        high_watermarks = read(names.HIGH_WATERMARKS)
        cleaned_offsets = read(names.CLEANER_OFFSETS)
        marker.remove()  # before anything is written: a crash from here on is unclean
        found = []
        for name in self.disk.list(path):
            folder = path / name
            if names.DELETED_FOLDER.fullmatch(name) or names.FUTURE_FOLDER.fullmatch(name):
                if self.disk.is_directory(folder):
                    self._discarded.find(folder, passed_ms(self.clock))
            elif (partition := names.parse_partition_folder(name)) is not None:
                found.append((partition, folder))

        def load_one(partition: TopicPartition, folder: Path) -> PartitionLog | None:
            options = LoadOptions(
                clean=clean,
                recovery_point=recovery_points.get(partition, 0),
                log_start_offset=start_offsets.get(partition, 0),
                cleaned_offset=cleaned_offsets.get(partition, 0),
                producer_id_expiration_ms=self.options.producer_id_expiration_ms,
            )
            config = config_of(partition)
            try:
                try:
                    return load(self.disk, self.clock, folder, partition, config, options)
                except OSError as error:
                    if not is_full(error) or not directory.reserve.release():
                        raise
                    return load(self.disk, self.clock, folder, partition, config, options)
            except NotADirectoryError:
                return None  # a file whose name looks like a partition
            except OSError:
                raise
            except Exception as error:  # whatever is wrong with one log, the others are served
                directory.refused[partition] = str(error)
                told = None if isinstance(error, LogError) else error
                _logger.error("%s is offline because its log cannot be opened: %s", partition, error, exc_info=told)
                return None

        def load_some(entries: Sequence[tuple[TopicPartition, Path]]) -> list[PartitionLog]:
            return [log for entry in entries if (log := load_one(*entry)) is not None]

        shares = [found[start : start + _LOADED_AT_ONCE] for start in range(0, len(found), _LOADED_AT_ONCE)]
        with ThreadPoolExecutor(self.options.recovery_threads_per_directory, "ottla-load") as pool:
            for log in chain.from_iterable(pool.map(load_some, shares)):
                log.set_high_watermark(high_watermarks.get(log.partition, log.log_start_offset))
                directory.logs[log.partition] = log
        if not clean or any(log.damages.repair_count for log in directory.logs.values()):
            self._renew_recovery_points(directory)

    def _renew_recovery_points(self, directory: LogDirectory) -> None:
        """A log may have lost records below the stored recovery point. If there is no room to write new ones, the old
        ones are removed: another start after a crash then reads everything, which is slow but safe."""
        try:
            self._checkpoint(directory)
        except OSError as error:
            if not is_full(error):
                raise
            _logger.warning("%s: the disk is full; recovery points are removed: %s", directory.path, error)
            self.disk.remove(directory.path / names.RECOVERY_POINTS)
            self.disk.sync_directory(directory.path)

    def _settle_duplicates(self, topic_id_of: TopicIdOf) -> None:
        """Handles a partition with two copies. Either a crash, or a failed directory, came when a moved replica had
        taken its place and the old one was not removed yet: both were complete then, and one may have more by now. Or a
        topic was deleted and created again while the directory of the old one had failed: then the copy of the current
        topic stays, whatever it contains."""

        def worth(log: PartitionLog) -> tuple[bool, tuple[int, int]]:
            return log.topic_id is not None and log.topic_id == topic_id_of(log.partition), _age(log)

        places: dict[TopicPartition, LogDirectory] = {}
        for directory in self.online():
            for partition in list(directory.logs):
                other = places.setdefault(partition, directory)
                if other is directory:
                    continue
                worse = other if worth(other.logs[partition]) < worth(directory.logs[partition]) else directory
                places[partition] = directory if worse is other else other
                _logger.warning(
                    "%s lies in %s and in %s, where a move or a deletion was not ended; the one in %s goes",
                    *(partition, other.path, directory.path, worse.path),
                )
                unique = Uuid(self.clock.now_ms().to_bytes(16, "big"))
                with self._guarded(worse):
                    self._discard(worse, [partition], unique).rename()

    def close(self) -> None:
        """Flushes and closes everything, and marks every directory in which that succeeded as closed cleanly. An error
        in one directory is logged and does not affect the others."""
        for directory in self.online():
            closed: set[TopicPartition] = set()
            try:
                try:
                    self._close(directory, closed)
                except OSError as error:
                    if not is_full(error) or not directory.reserve.release():
                        raise
                    self._close(directory, closed)
            except OSError as error:
                _logger.error("%s: %s; the next start checks its logs", directory.path, self.failed(directory, error))
            except Exception:
                _logger.exception("%s was not closed cleanly; the next start checks its logs", directory.path)
            for log in directory.logs.values():
                log.abandon()  # if it is still open
        self._discarded.close()
        self._release_locks()

    def _close(self, directory: LogDirectory, closed: set[TopicPartition]) -> None:
        """Logs in `closed` are already closed."""
        is_clean = True
        for partition, log in directory.logs.items():
            if partition in closed:
                continue
            try:
                log.flush()
                log.close()
                closed.add(partition)
            except (LogError, RecordError) as error:
                _logger.error("%s was not closed cleanly; the next start checks it: %s", partition, error)
                is_clean = False
        self._checkpoint(directory)
        if is_clean:
            CleanShutdownFile(self.disk, directory.path).write()

    # --- state ------------------------------------------------------------------------------------------------------

    def online(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.failure is None]

    def logs(self) -> Iterator[PartitionLog]:
        for directory in self.online():
            yield from list(directory.logs.values())

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        directory = self.directory_of(partition)
        return directory.logs[partition] if directory is not None and directory.failure is None else None

    def directory_of(self, partition: TopicPartition) -> LogDirectory | None:
        """The directory of a replica, even if it is offline."""
        return next((directory for directory in self.directories if partition in directory.logs), None)

    def change_producer_id_expiration(self, expiration_ms: int) -> None:
        """`producer.id.expiration.ms` has changed: applies to all existing and future logs."""
        self.options = replace(self.options, producer_id_expiration_ms=expiration_ms)
        for log in self.logs():
            log.producers.expiration_ms = expiration_ms

    # --- creating and deleting replicas -----------------------------------------------------------------------------

    def create(
        self, partition: TopicPartition, config: LogConfig, *, topic_id: Uuid | None = None, is_new: bool = True
    ) -> PartitionLog:
        """Returns the partition's log; creates it in the directory with the fewest replicas if it does not exist. A
        replica that is not new is not created again while a directory is offline: it may be there."""
        existing = self.directory_of(partition)
        if existing is not None:
            if existing.failure is not None:
                raise LogDirectoryError(existing.path, f"{partition} is in this directory, which is offline")
            log = existing.logs[partition]
            if topic_id is not None:
                with self.guard(existing):
                    log.metadata.assign(topic_id)  # raises for another topic of that name
            return log
        self.check_any_left()
        for each in self.directories:
            if partition in each.refused:
                reason = f"the log cannot be opened: {each.refused[partition]}"
                raise FileError(each.path / str(partition), f"{reason}; restore the folder from a copy, or remove it")
        offline = next((each for each in self.directories if each.failure is not None), None)
        if offline is not None and not is_new:
            raise LogDirectoryError(offline.path, f"{partition} may lie here, and the directory is offline")
        directory = min(self.online(), key=lambda each: len(each.logs))
        with self.guard(directory):
            if directory.checkpoints.names_former(partition):
                self._checkpoint(directory)
            new = NewLog(partition, config, ZERO_UUID if topic_id is None else topic_id)
            log = make_log(self.disk, self.clock, directory.path, new, self._new_log_options())
            directory.logs[partition] = log
        return log

    def _new_log_options(self) -> LoadOptions:
        return LoadOptions(clean=True, producer_id_expiration_ms=self.options.producer_id_expiration_ms)

    def place(self, new: Sequence[NewLog]) -> NewLogs:
        """Decides where new partitions go, each to the directory with the fewest replicas; a thread creates them."""
        self.check_any_left()
        counts = {directory.path: len(directory.logs) for directory in self.online()}
        places = []
        for each in new:
            path = min(counts, key=counts.__getitem__)
            counts[path] += 1
            places.append((path, each))
        former = {
            directory.path: directory.checkpoints.snapshot(directory.logs)
            for directory in self.online()
            if any(
                directory.checkpoints.names_former(each.partition) for path, each in places if path == directory.path
            )
        }
        return NewLogs(self.disk, self.clock, self._new_log_options(), places, former)

    def adopt(self, new: NewLogs) -> list[PartitionLog]:
        """Adds the created logs; a directory in which that failed goes offline. Logs in a directory that failed in the
        meantime are not added: they can be created elsewhere."""
        by_path = {directory.path: directory for directory in self.directories}
        adopted = []
        for path, log in new.made:
            if by_path[path].failure is None:
                by_path[path].logs[log.partition] = log
                adopted.append(log)
            else:
                with suppress(OSError):
                    log.abandon()
        for path, error in new.failures.items():
            _logger.error("%s: %s", path, self.failed(by_path[path], error))
        return adopted

    def delete_many(self, partitions: Sequence[TopicPartition], unique: Uuid) -> list[Deletion]:
        """Removes partitions and closes their files. The returned tasks, one per directory, rename the folders;
        `remove_later` removes them. No partition of such a name may be created before the tasks are done. A move of
        such a partition ends. Nothing is written, because a full disk has no space before the folders are removed.
        Partitions in a failed directory are only forgotten."""
        deletions = []
        for directory in self.directories:
            here = [partition for partition in partitions if partition in directory.logs]
            if directory.failure is not None:
                for partition in here:
                    self.moves.pop(partition, None)
                    with suppress(OSError):
                        directory.logs.pop(partition).abandon()
            elif here:
                for partition in here:
                    self.moves.pop(partition, None)
                    directory.logs[partition].abandon()
                deletions.append(self._discard(directory, here, unique))
        return deletions

    def delete(self, partition: TopicPartition, unique: Uuid) -> None:
        """Deletes one partition at once."""
        self.moves.pop(partition, None)
        for deletion in self.delete_many([partition], unique):
            with self.guard(deletion.directory):
                deletion.rename()

    def _discard(self, directory: LogDirectory, partitions: Sequence[TopicPartition], unique: Uuid) -> Deletion:
        """Forgets the partitions; what it returns renames their folders."""
        now_ms = passed_ms(self.clock)
        discarded = []
        for partition in partitions:
            log = directory.logs.pop(partition)
            directory.checkpoints.forget(partition)
            discarded.append(self._discarded.discard(log, unique, now_ms))
        return Deletion(directory, discarded, self._discarded, self.disk)

    # --- moving replicas --------------------------------------------------------------------------------------------

    def begin_move(self, partition: TopicPartition, target: LogDirectory, unique: Uuid) -> ReplicaMove:
        """Starts a move, which the caller continues; see `ReplicaMove`. A move of that partition to another directory
        must be cancelled first. Raises while a directory is offline: a newer copy may be there. An `OSError` concerns
        the target, which the caller takes offline unless it is only full."""
        log = self.get(partition)
        offline = next((each for each in self.directories if each.failure is not None), None)
        if log is None or offline is not None:
            path = target.path if offline is None else offline.path
            raise LogDirectoryError(path, f"{partition} cannot be moved: a log directory is offline")
        move = self.moves[partition] = ReplicaMove(log, target.path / marked_folder(partition, unique, "future"))
        return move

    def is_moving(self, move: ReplicaMove) -> bool:
        """Whether to continue: the move was not cancelled, and neither directory has failed."""
        present = self.moves.get(move.partition) is move and self.get(move.partition) is move.source
        return present and self._target_of(move).failure is None

    def _target_of(self, move: ReplicaMove) -> LogDirectory:
        return next(each for each in self.directories if each.path == move.target_path)

    def finish_move(self, move: ReplicaMove, unique: Uuid) -> PartitionLog:
        """Replaces the replica with the copy, including everything appended up to now. If that fails (`OSError` of the
        target, or an error that says it is offline), the old one stays.

        The new folder gets its name before the old one loses it: after a crash between the two, `open` finds both and
        keeps one.
        """
        partition, copy = move.partition, move.copy_log
        source, target = self.directory_of(partition), self._target_of(move)
        if source is None or not self.is_moving(move):
            raise ValueError(f"{partition}: its move to {target.path} was given up")
        move.catch_up()
        with self.guard(target):
            self._checkpoint(target, copy)
            folder = target.path / str(partition)
            self.disk.replace(copy.directory, folder)
            self.disk.sync_directory(target.path)
            relocate(copy, folder)
        del self.moves[partition]
        with self._guarded(source):
            self._discard(source, [partition], unique).rename()
        target.logs[partition] = copy
        return copy

    def give_up_move(self, move: ReplicaMove) -> None:
        """Removes the copy."""
        if self.moves.get(move.partition) is move:
            del self.moves[move.partition]
        target = self._target_of(move)
        if target.failure is None:
            with self._guarded(target):
                move.copy_log.abandon()
                self.disk.remove_directory(move.copy_log.directory)

    # --- followers --------------------------------------------------------------------------------------------------

    def truncate_to(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Truncates logs that had more than their leaders. Recovery points are written before anything new can be
        appended: otherwise new records at the old offsets would count as flushed after a crash."""
        for directory in self.online():
            here = [partition for partition in offsets if partition in directory.logs]
            if here:
                with self._guarded(directory, even_if_full=True):
                    for partition in here:
                        directory.logs[partition].truncate_to(offsets[partition])
                        if partition in self.moves:
                            self.moves[partition].source_truncated(offsets[partition])
                    self._checkpoint(directory)

    def truncate_fully_and_start_at(self, partition: TopicPartition, offset: int) -> None:
        """Empties a log whose leader has nothing before the offset."""
        directory = self.directory_of(partition)
        if directory is not None and directory.failure is None:
            with self._guarded(directory, even_if_full=True):
                directory.logs[partition].truncate_fully_and_start_at(offset)
                if partition in self.moves:
                    self.moves[partition].source_truncated(0)
                self._checkpoint(directory)

    def truncated(self, log: PartitionLog, offset: int, old_recovery_point: int) -> None:
        """Called when a log was truncated to the offset, or emptied (0), here or by its owner: truncates its copy for
        another directory as well, and writes the recovery point if the old one is too high now."""
        directory = self.directory_of(log.partition)
        if directory is None or directory.failure is not None:
            return
        with self._guarded(directory, even_if_full=True):
            if log.partition in self.moves:
                self.moves[log.partition].source_truncated(offset)
            if log.recovery_point < old_recovery_point:
                self._checkpoint(directory)

    # --- periodic work ----------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        for directory in self.online():
            with self._guarded(directory):
                self._checkpoint(directory)

    def checkpoint_later(self) -> list[tuple[LogDirectory, Task]]:
        """Returns what `checkpoint` would write now, one task per directory: to be run in a thread, because it syncs. A
        task raises `OSError`; it does nothing if something newer was written before it ran."""
        return [(directory, self._checkpoint_task(directory)) for directory in self.online()]

    def _checkpoint(self, directory: LogDirectory, coming: PartitionLog | None = None) -> None:
        self._checkpoint_task(directory, coming)()

    def _checkpoint_task(self, directory: LogDirectory, coming: PartitionLog | None = None) -> Task:
        """`coming` is a log that is about to be moved into the directory."""
        logs = directory.logs if coming is None else {**directory.logs, coming.partition: coming}
        return directory.checkpoints.snapshot(logs)

    def remove_later(self) -> list[tuple[LogDirectory, Task]]:
        """Closes files that were deleted long enough ago. The returned tasks, one per directory, remove them in a
        thread, because unlinking large files takes long. A task raises `OSError`; the next one tries again."""
        now_ms = passed_ms(self.clock)
        return [(directory, self._removal(directory, now_ms)) for directory in self.online()]

    def _removal(self, directory: LogDirectory, now_ms: int) -> Task:
        segments = directory.removable
        for log in directory.logs.values():
            segments += log.take_removable()
        due = self._discarded.due(directory.path, now_ms)

        def remove() -> None:
            while segments:
                segments[-1].delete()
                segments.pop()
            self._discarded.remove(due)

        return remove

    def remove_due(self) -> None:
        """Like `remove_later`, at once."""
        for directory, remove in self.remove_later():
            with self._guarded(directory):
                remove()

    # --- failures ---------------------------------------------------------------------------------------------------

    @contextmanager
    def guard(self, directory: LogDirectory, *, even_if_full: bool = False) -> Iterator[None]:
        """Wraps access to a directory's files: an `OSError` becomes a `LogDirectoryError`, and takes the directory
        offline. A full disk does so only with `even_if_full`: for work that must not stay half done."""
        try:
            yield
        except OSError as error:
            if even_if_full:
                self.take_offline(directory, str(error))
            raise LogDirectoryError(directory.path, self.failed(directory, error)) from error

    @contextmanager
    def _guarded(self, directory: LogDirectory, *, even_if_full: bool = False) -> Iterator[None]:
        """Like `guard`, for work that continues with the other directories."""
        try:
            with self.guard(directory, even_if_full=even_if_full):
                yield
        except LogDirectoryError as error:
            _logger.error("%s", error)

    def failed(self, directory: LogDirectory, error: OSError) -> str:
        """For operations that add something and leave the rest unchanged (an append, a checkpoint, a log): takes the
        directory offline, unless its disk is only full, and there may be space again. Returns the message."""
        if is_full(error):
            return f"the disk is full: {error}"
        self.take_offline(directory, str(error))
        return f"the directory is offline: {error}"

    def log_failed(self, log: PartitionLog, error: OSError) -> str:
        """Like `failed`, for an operation on a log: takes the directory of that log offline, which need not be the one
        that has its partition now. A log that was moved or deleted in the meantime may find its files gone."""
        path = log.directory.parent
        directory = next(each for each in self.directories if each.path == path)
        if directory.logs.get(log.partition) is not log and error.errno in _CLOSED:
            return f"{log.partition} was moved or deleted: {error}"
        return self.failed(directory, error)

    def take_offline(self, directory: LogDirectory, reason: str) -> None:
        """No file in it is used again. Its replicas are known, but not served."""
        if directory.failure is None:
            directory.failure = reason
            self.on_failure(directory)

    def check_any_left(self) -> None:
        """Raises the last failure if all directories are offline."""
        if not self.online():
            last = self.directories[-1]
            raise LogDirectoryError(last.path, f"all log directories are offline; the last failure was: {last.failure}")


def _age(log: PartitionLog) -> tuple[int, int]:
    """Increases with a replica's data: its last leader epoch, then its end."""
    epoch = log.epochs.latest_epoch
    return -1 if epoch is None else epoch, log.next_offset
