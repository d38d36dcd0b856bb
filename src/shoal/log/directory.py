"""A data directory: the partitions in it, the files they share, one process at a time.

Layout, Kafka's: a directory per partition (``<topic>-<number>``), beside them the checkpoints,
``meta.properties`` and, only while nobody uses it, the marker of a clean stop. Paths are built from
names that were checked, never from what a client sent.

Background work (``checkpoint``, ``retain``, ``compact``) comes as jobs (``jobs.py``), so that the
owner can serve between their slices.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final
from uuid import UUID, uuid4

from shoal.errors import StorageError
from shoal.log import cleaning
from shoal.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOCK,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    SharedFiles,
    decode_offsets,
    decode_properties,
    encode_offsets,
    encode_properties,
    show_id,
)
from shoal.log.config import Durability, LogConfig
from shoal.log.disk import Disk, OsDisk, read_file, remove_trees, replace_file
from shoal.log.jobs import Attempt, Job, attempt
from shoal.log.jobs import run_job as run_job
from shoal.log.loading import Known, RecoveryReport, create_partition, load_partition
from shoal.log.partition import PartitionLog
from shoal.log.reserve import Reserve
from shoal.types import TopicPartition

logger = logging.getLogger(__name__)

RESERVE_BYTES: Final = 64 << 20
OFFSETS_TOPIC: Final = "__consumer_offsets"
# They speak of data in other logs.
SYNCED_LAST: Final = frozenset({OFFSETS_TOPIC, "__transaction_state"})
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_DIRECTORY_NAME: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_LOADERS: Final = 8
_CLOSED_TOGETHER: Final = 32
_AT_THE_TOP: Final = frozenset(
    (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS, CLEAN_SHUTDOWN, LOCK)
)


def is_topic_name(name: str) -> bool:
    """Kafka's rule: 1 to 249 letters, digits, ``.``, ``_``, ``-``; not ``.`` or ``..``."""
    return _TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


def directory_name(topic_partition: TopicPartition) -> str:
    """Where a partition lives.

    Raises:
        ValueError: the name cannot be a topic's; the caller should have refused it.
    """
    if not is_topic_name(topic_partition.topic) or topic_partition.partition < 0:
        raise ValueError(f"{topic_partition!r} cannot be a partition")
    return f"{topic_partition.topic}-{topic_partition.partition}"


def partition_of(name: str) -> TopicPartition | None:
    """The partition a directory belongs to; None if it is something else."""
    match = _DIRECTORY_NAME.fullmatch(name)
    if match is None or not is_topic_name(match[1]) or int(match[2]) >= 2**31:
        return None
    return TopicPartition(match[1], int(match[2]))


def _refuse_foreign(disk: Disk, companions: Iterable[str]) -> None:
    """Opening removes what a crash left half deleted: never do that in somebody's home."""
    if disk.stat(META_PROPERTIES) is not None:
        return
    known = {*_AT_THE_TOP, META_PROPERTIES, *companions, "lost+found"}
    for entry in disk.list():
        is_partition = entry.kind == "directory" and partition_of(entry.name) is not None
        # A first start that failed may have left one of them half written.
        if not is_partition and entry.name.removesuffix(".tmp") not in known:
            raise StorageError(
                f"{disk.root} is not a data directory and not empty (it holds {entry.name!r}); "
                "give a new or an empty one"
            )


class LogDirectory:
    """Every partition of a broker. Use ``LogDirectory.open``."""

    def __init__(
        self,
        disk: Disk,
        *,
        durability: Durability,
        config_for: Callable[[str], LogConfig],
        reserve_bytes: int,
    ) -> None:
        self.disk = disk
        self.durability = durability
        self.partitions: dict[TopicPartition, PartitionLog] = {}
        #: Partitions which could not be opened, and why.
        self.offline: dict[TopicPartition, str] = {}
        self.reports: list[RecoveryReport] = []
        self.meta: dict[str, str] = {}
        self.clean_start = False
        self._config_for = config_for
        self._reserve = Reserve(disk, reserve_bytes)
        self._lock = disk.lock(LOCK)
        self._on_disk: frozenset[TopicPartition] = frozenset()
        self._expired = cleaning.Expired(disk)
        self._checkpoint_number = self._checkpoint_written = 0
        self._checkpoint_lock = threading.Lock()

    @classmethod
    def open(
        cls,
        root: str | Disk,
        *,
        now_ms: int,
        durability: Durability = Durability.GROUP,
        config_for: Callable[[str], LogConfig] = lambda _: LogConfig(),
        reserve_bytes: int = RESERVE_BYTES,
        node_id: int = 1,
        cluster_id: str | None = None,
        companions: Iterable[str] = (),
        loaders: int = _LOADERS,
    ) -> LogDirectory:
        """Lock a directory and open every partition in it.

        ``companions`` are files of the owner's that may be there before the first start;
        ``loaders`` is how many threads recover partitions, 0 for none (simulations).

        Raises:
            DataDirectoryInUseError: another process has it.
            StorageError: it cannot be used, or belongs to another cluster or node, or was never a
                data directory and holds something else.
        """
        disk = OsDisk(root) if isinstance(root, str) else root
        _refuse_foreign(disk, companions)
        directory = cls(
            disk, durability=durability, config_for=config_for, reserve_bytes=reserve_bytes
        )
        try:
            directory._check_meta(node_id, cluster_id)
            directory._load(now_ms, loaders)
        except BaseException:
            directory._lock.release()
            raise
        return directory

    # Opening

    def _check_meta(self, node_id: int, cluster_id: str | None) -> None:
        found = decode_properties(read_file(self.disk, META_PROPERTIES))
        wanted = {"node.id": str(node_id)}
        if cluster_id is not None:
            wanted["cluster.id"] = cluster_id
        for name, value in wanted.items():
            if found.get(name, value) != value:
                raise StorageError(
                    f"{self.disk.root} belongs to {name} {found[name]}, not {value}; "
                    "choose another data directory"
                )
        fresh = {"version": "1", "cluster.id": show_id(uuid4()), "directory.id": show_id(uuid4())}
        self.meta = {**fresh, **wanted, **found}
        if self.meta != found:
            replace_file(self.disk, META_PROPERTIES, encode_properties(self.meta))

    def _load(self, now_ms: int, loaders: int) -> None:
        self.clean_start = self.disk.stat(CLEAN_SHUTDOWN) is not None
        checkpoints = {
            name: decode_offsets(read_file(self.disk, name)) or {}
            for name in (RECOVERY_POINTS, LOG_STARTS, CLEANER_OFFSETS)
        }
        self._on_disk = frozenset().union(*checkpoints.values())
        found = {}
        for entry in self.disk.list():
            if entry.kind != "directory":
                continue
            if entry.name.endswith("-delete"):
                remove_trees(self.disk, [entry.name])
            elif (tp := partition_of(entry.name)) is not None:
                found[tp] = entry.name

        def load(tp: TopicPartition) -> tuple[PartitionLog, RecoveryReport] | OSError:
            known = Known(
                clean=self.clean_start,
                recovery_point=checkpoints[RECOVERY_POINTS].get(tp, 0),
                start_offset=checkpoints[LOG_STARTS].get(tp, 0),
                cleaned_offset=checkpoints[CLEANER_OFFSETS].get(tp, 0),
            )
            try:
                return self._load_partition(tp, known, now_ms)
            except OSError as error:
                return error

        self._take(found, load, loaders)
        if self.clean_start:
            # Durably, before anything is appended: from here on a crash is a crash.
            self.disk.remove(CLEAN_SHUTDOWN)
            self.disk.sync_directory()
        elif found:
            self._write_checkpoints()

    def _take(
        self,
        found: Iterable[TopicPartition],
        load: Callable[[TopicPartition], tuple[PartitionLog, RecoveryReport] | OSError],
        loaders: int,
    ) -> None:
        names = sorted(found)
        if self.clean_start or len(names) < 2 or not loaders:
            results = [load(tp) for tp in names]
        else:
            # Recovery waits for the disk most of the time.
            with ThreadPoolExecutor(loaders, thread_name_prefix="shoal-load") as pool:
                results = list(pool.map(load, names))
        for tp, result in zip(names, results, strict=True):
            if isinstance(result, OSError):
                self.offline[tp] = str(result)
                logger.error("%s cannot be opened: %s", tp, result)
            else:
                self.partitions[tp], report = result
                self._tell(report)

    def _load_partition(
        self, tp: TopicPartition, known: Known, now_ms: int
    ) -> tuple[PartitionLog, RecoveryReport]:
        log, report = load_partition(
            self.disk,
            directory_name(tp),
            tp,
            self._config_for(tp.topic),
            self.durability,
            known=known,
            reserve=self._reserve,
            now_ms=now_ms,
        )
        log.sync_last = tp.topic in SYNCED_LAST
        return log, report

    def _tell(self, report: RecoveryReport) -> None:
        self.reports.append(report)
        tell(report)

    # Partitions

    def create(
        self,
        topic_partition: TopicPartition,
        *,
        now_ms: int,
        config: LogConfig | None = None,
        topic_id: UUID | None = None,
    ) -> PartitionLog:
        """A new partition; durable with its first sync.

        Raises:
            ValueError: it exists, or its name is not allowed.
            OSError: the disk refuses.
        """
        if topic_partition in self.partitions:
            raise ValueError(f"{topic_partition} exists")
        if topic_partition in self._on_disk:
            # The checkpoints still speak of a deleted partition of that name.
            self._write_checkpoints()
        log = create_partition(
            self.disk,
            directory_name(topic_partition),
            topic_partition,
            config or self._config_for(topic_partition.topic),
            self.durability,
            reserve=self._reserve,
            now_ms=now_ms,
            topic_id=topic_id,
        )
        log.sync_last = topic_partition.topic in SYNCED_LAST
        self.partitions[topic_partition] = log
        return log

    def delete(self, *topic_partitions: TopicPartition) -> Callable[[], None]:
        """Take partitions out at once; returns the work that removes their files.

        Readers with an open slice go on undisturbed.
        """
        self.take_out(*topic_partitions)
        return self.removal([self.bury(tp) for tp in topic_partitions])

    def take_out(self, *topic_partitions: TopicPartition) -> None:
        """Serve them no more; their directories are where they were until ``bury``."""
        for tp in topic_partitions:
            log = self.partitions.pop(tp)
            log.closed = True
            log.fence(f"{tp} was deleted")
            # Who is told holds the log: until a collection, which may never come, the two would
            # keep the files open and the disk full.
            log.on_advance = None

    def bury(self, topic_partition: TopicPartition) -> str:
        """Make room for a new partition of this name; returns the name of what is to be removed.

        Kafka's way: under a name that no partition can have, so that a crash cannot revive it.
        """
        name = directory_name(topic_partition)
        doomed = f"{name}.{uuid4().hex}-delete"
        if len(doomed) > 255:
            doomed = f"{uuid4().hex}-delete"
        self.disk.rename(name, doomed)
        return doomed

    def removal(self, doomed: Sequence[str]) -> Callable[[], None]:
        """The work that removes what was buried, for any thread."""
        contents = self._checkpoint_contents()

        def run() -> None:
            self.disk.sync_directory()
            self._replace_checkpoints(contents)
            remove_trees(self.disk, doomed)

        return run

    def reopen(self, topic_partition: TopicPartition, *, now_ms: int) -> PartitionLog:
        """Open a fenced or offline partition again, with a scan of all that was not synced."""
        old = self.partitions.pop(topic_partition, None)
        known = Known(clean=False)
        if old is not None:
            old.fence("it is being opened again")
            known = Known(
                clean=False,
                recovery_point=old.synced_offset,
                start_offset=old.start_offset,
                cleaned_offset=old.cleaned_offset,
            )
        log, report = self._load_partition(topic_partition, known, now_ms)
        self.disk.sync_directory()  # it may have been fenced before its name was durable
        if old is not None:
            log.on_advance = old.on_advance
            log.config = old.config
        self.partitions[topic_partition] = log
        self.offline.pop(topic_partition, None)
        self._tell(report)
        return log

    # Background work

    def checkpoint(self, now_ms: int) -> Job:
        """Save what makes the next start quick, and how far every partition is synced."""
        for log in list(self.partitions.values()):
            if log.fenced is None and not log.closed:
                try:
                    yield from self._checkpoint_one(log, now_ms)
                except OSError as error:
                    logger.error("%s: no checkpoint: %s", log.topic_partition, error)
        yield from self._save_checkpoints()

    def _checkpoint_one(self, log: PartitionLog, now_ms: int) -> Job:
        log.producers.expire(now_ms)
        # Under the other policies the syncer does it.
        is_left_to_the_os = self.durability is Durability.OS
        work = log.begin_sync(sealed_only=True) if is_left_to_the_os else None
        if work is not None:
            result: list[OSError | None] = []
            yield lambda: result.append(work.run())
            log.finish_sync(work, result[0])
        if log.needs_checkpoint and log.fenced is None:
            yield from attempt(log.checkpoint())

    def save_starts(self) -> Job:
        """Make durable where every log starts.

        Raises:
            OSError: what the disk said.
        """
        contents = self._checkpoint_contents()
        yield from attempt(lambda: self._replace_checkpoints(contents))

    def _save_checkpoints(self) -> Generator[Callable[[], object] | None, None, bool]:
        """Work that replaces the shared files; True in the end if it succeeded."""
        contents = self._checkpoint_contents()
        saved = Attempt(lambda: self._replace_checkpoints(contents))
        yield saved
        if saved.error is not None:
            logger.error("the checkpoints of %s: %s", self.disk.root, saved.error)
        return saved.error is None

    def retain(self, now_ms: int) -> Job:
        """Delete what is past its retention.

        Where the logs start is made durable first: a crash may bring some of the files back, and
        then nobody must take them for the beginning of the log.
        """
        for log in list(self.partitions.values()):
            try:
                gone = cleaning.retain(log, now_ms)
            except OSError as error:  # a new segment could not be made
                logger.error("%s: no retention: %s", log.topic_partition, error)
                continue
            if gone:
                logger.info("%s starts at offset %d now", log.topic_partition, log.start_offset)
                self._expired.add(log, gone)
        if self._expired and (yield from self._save_checkpoints()):
            yield from self._expired.remove(lambda log: self.partitions.get(log.topic_partition))

    def compact(self, now_ms: int) -> Job:
        """Compact the partitions that need it, the dirtiest first."""
        logs = [log for log in self.partitions.values() if log.config.compacts]
        dirty = [(cleaning.dirty_ratio(log, now_ms), log) for log in logs]
        for ratio, log in sorted(dirty, key=lambda one: -one[0]):
            if ratio > 0 and not log.closed:
                yield from cleaning.compact(log, now_ms)

    def release_idle_files(self) -> None:
        """Close file handles; whoever needs one opens it again."""
        for log in self.partitions.values():
            log.release_files()

    # Shared files

    def _checkpoint_contents(self) -> SharedFiles:
        def offsets(of: Callable[[PartitionLog], int]) -> bytes:
            return encode_offsets({tp: of(log) for tp, log in self.partitions.items()})

        self._checkpoint_number += 1
        files = {
            RECOVERY_POINTS: offsets(lambda log: log.synced_offset),
            LOG_STARTS: offsets(lambda log: log.start_offset),
            HIGH_WATERMARKS: offsets(lambda log: log.high_watermark),
            CLEANER_OFFSETS: encode_offsets(
                {
                    tp: log.cleaned_offset
                    for tp, log in self.partitions.items()
                    if log.config.compacts
                }
            ),
        }
        return SharedFiles(self._checkpoint_number, files, frozenset(self.partitions))

    def _replace_checkpoints(self, contents: SharedFiles) -> None:
        """In any thread. Jobs overlap: one at a time writes, and none over what is newer."""
        with self._checkpoint_lock:
            if contents.number < self._checkpoint_written:
                return
            self._on_disk |= contents.partitions  # should it end half-way
            for name, content in contents.files.items():
                replace_file(self.disk, name, content)
            self._on_disk = contents.partitions
            self._checkpoint_written = contents.number

    def _write_checkpoints(self) -> None:
        self._replace_checkpoints(self._checkpoint_contents())

    def abandon(self) -> None:
        """Let go as a process that dies does: nothing is synced or saved."""
        self._lock.release()

    def close(self) -> None:
        """Sync and close every partition; the next start scans nothing."""
        synced: set[str] = set()
        closing = [Attempt(partial(log.close, synced)) for log in self.partitions.values()]
        if len(closing) < _CLOSED_TOGETHER:
            for each in closing:
                each()
        else:
            # Closing waits for the disk most of the time. Whom a last sync lets advance is past.
            for log in self.partitions.values():
                log.on_advance = None
            with ThreadPoolExecutor(_LOADERS, thread_name_prefix="shoal-close") as pool:
                list(pool.map(Attempt.__call__, closing))
        try:
            self._write_checkpoints()
            for each in closing:
                each.check()
            if not self.offline and all(log.fenced is None for log in self.partitions.values()):
                replace_file(self.disk, CLEAN_SHUTDOWN, b'{"version":0,"brokerEpoch":-1}')
        except OSError as error:
            logger.error("%s is scanned by the next start: %s", self.disk.root, error)
        finally:
            self._lock.release()


logger = logging.getLogger("shoal.log.directory")


def tell(report: RecoveryReport) -> None:
    """One line for every loss; none if there was none."""
    for cut in report.cuts:
        logger.error(
            "%s: cut %d bytes at %d of %s (%s); kept in %s",
            report.topic_partition,
            cut.size_bytes,
            cut.position,
            cut.path,
            cut.reason,
            cut.quarantine or "no file, they were zeros",
        )
    for bad in report.corrupt:
        logger.error(
            "%s: offsets %d to %d are corrupt (%s), bytes %d to %d of segment %d; "
            "nothing was deleted, run `shoal log verify`",
            report.topic_partition,
            bad.start_offset,
            bad.end_offset,
            bad.reason,
            bad.position,
            bad.end_position,
            bad.segment_base,
        )
