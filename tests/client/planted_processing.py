"""Bugs planted in ``process``, see ``tests/planted``."""

from __future__ import annotations

from tests.planted.bugs import PlantedBug

CORE = "client/processing_progress.py"
SHELL = "client/processing.py"
TASKS = "client/async_processing.py"


def _core(which: str) -> str:
    return f"tests/client/test_processing_progress.py -k '{which}'"


def _by(which: str) -> str:
    """The tests whose names contain ``which``, against our broker alone."""
    return f"tests/client/test_processing.py -m 'not kafka' -k '{which}'"


def _told(which: str) -> str:
    """Stories of members that come and go, in virtual time."""
    return f"tests/simulation/test_blocking_processing.py -x -k '{which}'"


PLANTED = (
    PlantedBug(
        "records of one key are worked on at the same time",
        CORE,
        "            self._lanes[job.lane].append(job)\n",
        "            self._ready.append(job)\n",
        _core("one_key_are_worked_on"),
    ),
    PlantedBug(
        "a key is one lane in all partitions",
        CORE,
        "return (tp, record.key) if",
        "return (tp.topic, record.key) if",
        _core("two_partitions_is_two_lanes"),
    ),
    PlantedBug(
        "records without a key wait for each other",
        CORE,
        ' or (self._order == "key" and record.key is None)',
        "",
        _core("one_key_are_worked_on"),
    ),
    PlantedBug(
        "order by partition is by key",
        CORE,
        'if self._order == "key" else (tp,)',
        "if True else (tp,)",
        _core("one_partition_are"),
    ),
    PlantedBug(
        "a partition that is back does not wait for the handler of before",
        CORE,
        "        elif job.lane in self._busy:\n",
        "        elif False:\n",
        _told("ahead_of_the_work and partition-range"),
    ),
    PlantedBug(
        "a partition that is back waits for a retry of before",
        CORE,
        "            self._busy.discard(job.lane)  # the lane stays closed all the same\n",
        "",
        _core("does_not_wait_for_a_retry"),
    ),
    PlantedBug(
        "a handler that fails after its partition was lost closes its lane for good",
        CORE,
        "            self.is_stopping = True\n        else:\n            self._leave(job)\n",
        "            self.is_stopping = True\n",
        _core("waits_for_the_handler_of_before"),
    ),
    PlantedBug(
        "what may be committed is behind the last record that is done",
        CORE,
        "        self.done.add(offset)\n",
        "        self.done.add(offset)\n"
        "        while self.records and self.records[0][0] < offset:\n"
        "            self.done.discard(self.records.popleft()[0])\n",
        _core("first_record_that_is_not_done"),
    ),
    PlantedBug(
        "a position is the last record instead of the next",
        CORE,
        "            part.next_offset = record.offset + 1\n",
        "            part.next_offset = record.offset\n",
        _core("first_record_that_is_not_done"),
    ),
    PlantedBug(
        "a committed offset carries no leader epoch",
        CORE,
        "OffsetAndMetadata(part.position, leader_epoch=part.epoch)",
        "OffsetAndMetadata(part.position)",
        _core("first_record_that_is_not_done"),
    ),
    PlantedBug(
        "what was committed is committed again and again",
        CORE,
        "part.committed = max(part.committed, one.offset)",
        "part.committed = part.committed",
        _core("first_record_that_is_not_done"),
    ),
    PlantedBug(
        "a lane goes on while its first record waits to be tried again",
        CORE,
        "            self._retries += 1\n",
        "            self._retries += 1\n"
        "            if job.lane and self._lanes[job.lane]:\n"
        "                self._ready.append(self._lanes[job.lane].popleft())\n",
        _core("keeps_its_lane_closed"),
    ),
    PlantedBug(
        "a retry comes at once",
        CORE,
        "while self._later and self._later[0][0] <= now:",
        "while self._later:",
        _core("keeps_its_lane_closed"),
    ),
    PlantedBug(
        "a delay stays as it was",
        CORE,
        "* 2.0 ** min(job.attempts - 1, 30)",
        "",
        _core("keeps_its_lane_closed"),
    ),
    PlantedBug(
        "a delay grows for ever",
        CORE,
        "min(delay_s, max(_RETRY_DELAY_MAX_S, self._options.retry_delay_s))",
        "delay_s",
        _core("does_not_grow"),
    ),
    PlantedBug(
        "a record is tried once more than it may",
        CORE,
        "if job.attempts <= self._options.retries and",
        "if job.attempts <= self._options.retries + 1 and",
        _core("keeps_its_lane_closed"),
    ),
    PlantedBug(
        "what cannot be read is tried again",
        CORE,
        " and not is_final:",
        ":",
        _core("not_tried_again"),
    ),
    PlantedBug(
        "a record that failed for good counts as done",
        CORE,
        "        job.part.running -= 1\n        if self._is_ours(job):\n",
        "        job.part.running -= 1\n"
        "        job.part.finish(job.record.offset)\n        if self._is_ours(job):\n",
        _core("keeps_its_lane_closed"),
    ),
    PlantedBug(
        "after a failure the work goes on",
        CORE,
        "            self.is_stopping = True\n",
        "",
        _core("keeps_its_lane_closed"),
    ),
    PlantedBug(
        "records of a revoked partition are begun",
        CORE,
        "return part.end is None or job.record.offset < part.end",
        "return True",
        _core("nothing_is_begun"),
    ),
    PlantedBug(
        "what failed for an earlier assignment is tried again for this one",
        CORE,
        "        if part is None or part is not job.part:\n            return False",
        "        if part is None:\n            return False",
        _core("does_not_wait_for_a_retry_of_before"),
    ),
    PlantedBug(
        "what is read again from further back is behind what was done",
        CORE,
        "if part is None or record.offset < part.next_offset:",
        "if part is None:",
        _core("further_back"),
    ),
    PlantedBug(
        "when it stops one more is begun",
        CORE,
        "        while self._ready and not self.is_stopping:\n",
        "        while self._ready:\n",
        _core("nothing_more_is_begun"),
    ),
    # The shells
    PlantedBug(
        "partitions go while their records are worked on",
        SHELL,
        "                lambda: not self._progress.is_open(partitions), "
        "self._options.drain_timeout_s\n",
        "                lambda: True, self._options.drain_timeout_s\n",
        _by("under_way_when_partitions_go"),
    ),
    PlantedBug(
        "partitions go without a commit",
        SHELL,
        "        self._commit(partitions)\n",
        "",
        _by("under_way_when_partitions_go"),
    ),
    PlantedBug(
        "nobody polls while a handler takes long",
        SHELL,
        "                    self._changed.wait(POLL_S)\n",
        "                    self._changed.wait(POLL_S)\n"
        "                self._changed.wait_for(lambda: not progress.running(), 30)\n",
        _by("does_not_cost_the_membership"),
    ),
    PlantedBug(
        "it ends before what is under way",
        SHELL,
        "self._changed.wait_for(lambda: not self._progress.running(), POLL_S)\n"
        "                left = self._progress.running()\n",
        "left = 0\n",
        _by("under_way_at_the_end and threads"),
    ),
    PlantedBug(
        "it ends without a last commit",
        SHELL,
        "        try:\n            self._commit()\n        except WakeupError:\n",
        "        try:\n            pass\n        except WakeupError:\n",
        _by("tried_again_after_a_while"),
    ),
    PlantedBug(
        "a record is done before its letter is stored",
        SHELL,
        "self._letters.send(self._options.dead_letter_topic, **letter).result()",
        "self._letters.config",
        _by("lies_in_the_dead_letter_topic"),
    ),
    PlantedBug(
        "a letter holds what the handler got",
        "client/fetch_buffer.py",
        "if not self.is_raw and (self._key",
        "if (self._key",
        _by("lies_in_the_dead_letter_topic"),
    ),
    PlantedBug(
        "tasks: partitions go while their records are worked on",
        TASKS,
        "        while self._progress.is_open(partitions) and self._loop.time() < until:\n",
        "        while False:\n",
        _by("under_way_when_partitions_go and tasks"),
    ),
    PlantedBug(
        "tasks: what was read is committed, done or not",
        TASKS,
        "            await self._consumer.commit(offsets)\n",
        "            await self._consumer.commit()\n",
        "tests/simulation/test_cancelling.py -k 'processing_that_is_cancelled and begins'",
    ),
    PlantedBug(
        "tasks: a record that failed once is done",
        TASKS,
        "        if not is_dead:\n            return\n",
        "        if not is_dead:\n            self._settle(self._progress.done, job)\n"
        "            return\n",
        "tests/simulation/test_cancelling.py -k 'two_that_process and begins'",
    ),
    PlantedBug(
        "tasks: who cancels waits for every handler",
        TASKS,
        " and not (task is not None and task.cancelling()):",
        ":",
        _by("who_cancels"),
    ),
    PlantedBug(
        "tasks: handlers go on after the end",
        TASKS,
        "                worker.cancel()\n",
        "                pass\n",
        _by("who_cancels"),
    ),
    PlantedBug(
        "partitions that others have already are worked on",
        SHELL,
        '        """Others have them already."""\n'
        "        with self._changed:\n"
        "            self._progress.forget(partitions)\n",
        '        """Others have them already."""\n',
        _told("ahead_of_the_work"),
    ),
    PlantedBug(
        "nobody is up when a record is to be tried again",
        SHELL,
        "self._changed.wait(None if due is None else max(0.0, due - time.monotonic()))",
        "self._changed.wait(None)",
        _told("ahead_of_the_work"),
    ),
    PlantedBug(
        "new records wake nobody",
        SHELL,
        "                    progress.add(records)\n"
        "                    self._changed.notify_all()\n",
        "                    progress.add(records)\n",
        _told("ahead_of_the_work"),
    ),
    PlantedBug(
        "workers stand still during a commit",
        SHELL,
        "            self._consumer.commit_sync(offsets)\n",
        "            with self._changed:\n                self._consumer.commit_sync(offsets)\n",
        _told("ahead_of_the_work"),
    ),
    PlantedBug(
        "a record is done whatever its handler raises",
        SHELL,
        "            is_dead = self._progress.failed(\n"
        "                job, error, time.monotonic(), "
        "is_final=isinstance(error, RecordDeserializationError)\n"
        "            )\n",
        "            is_dead = self._progress.done(job)\n",
        _told("ahead_of_the_work"),
    ),
)
