"""Bugs planted in the transaction coordinator, see ``tests/planted``. Ids are Kafka's own."""

from __future__ import annotations

from tests.planted.bugs import PlantedBug

TESTS = "tests/transaction/test_coordinator.py"
JOURNAL = "tests/transaction/test_journal.py"
COORDINATOR = "transaction/coordinator.py"

PLANTED = (
    PlantedBug(
        "the number of tags in a record is too small",
        "wire/transaction_topic.py",
        "tags + 1, tagged + _TAGGED_ID.pack(1, 8, next_producer_id)",
        "tags, tagged",
        f"{JOURNAL} -k bytes_of_its_schema",
    ),
    PlantedBug(
        "a second init does not fence the first producer",
        COORDINATOR,
        "producer_id, epoch, previous = record.producer_id, record.epoch + 1, None",
        "producer_id, epoch, previous = record.producer_id, record.epoch, None",
        f"{TESTS} -k each_init_gets_the_next",
    ),
    PlantedBug(
        "KAFKA-9600: an ending of an old epoch is accepted",
        COORDINATOR,
        "    if request.producer_epoch != record.epoch:\n"
        "        return ErrorCode.PRODUCER_FENCED\n",
        "",
        f"{TESTS} -k old_flow",
    ),
    PlantedBug(
        "KAFKA-5231: markers of the new flow carry the old epoch",
        COORDINATOR,
        "epoch = record.epoch + 1 if bumps else record.epoch\n",
        "epoch = record.epoch\n",
        f"{TESTS} -k carry_the_next_epoch",
    ),
    PlantedBug(
        "KAFKA-6119: a timeout aborts but does not fence",
        COORDINATOR,
        "        bumps_to = record.epoch + 1\n",
        "        bumps_to = record.epoch\n",
        f"{TESTS} -k takes_too_long",
    ),
    PlantedBug(
        "KAFKA-20310: the next producer id is forgotten in the log",
        "transaction/journal.py",
        "        next_producer_id=_NEVER if following is None else following,\n",
        "        next_producer_id=-1,\n",
        f"{TESTS} -k runs_out_in_the_new_flow",
    ),
    PlantedBug(
        "KAFKA-20785: a commit that finds the coordinator's abort is told the wrong state",
        COORDINATOR,
        "return ErrorCode.PRODUCER_FENCED if request.committed else _OTHER_OUTCOME",
        "return _OTHER_OUTCOME",
        f"{TESTS} -k new_flow",
    ),
    PlantedBug(
        "markers are ordered although their decision was not written",
        COORDINATOR,
        "            if reply.ticket is not self._markers:\n",
        "            if reply.ticket is self._markers:\n"
        "                draft.replies.append(reply)\n"
        "            else:\n",
        f"{TESTS} -k journal_that_refuses",
    ),
    PlantedBug(
        "KAFKA-7519: after a failed append nobody tries the markers again",
        COORDINATOR,
        'self._timers.arm(("again", record.transactional_id), now_ms + _AGAIN_MS)\n',
        "pass\n",
        f"{TESTS} -k journal_that_refuses",
    ),
    PlantedBug(
        "a restart forgets to end what was decided",
        COORDINATOR,
        "            if record.state.is_prepared:\n"
        "                self._order_markers(draft, record)\n"
        "            elif record.state is",
        "            if record.state is",
        f"{TESTS} -k restart_finds",
    ),
    PlantedBug(
        "the time of a transaction starts again with every partition",
        COORDINATOR,
        "start_ms=record.start_ms if is_open else draft.now_ms,",
        "start_ms=draft.now_ms,",
        f"{TESTS} -k clock_starts_with_the_first",
    ),
    PlantedBug(
        "partitions of the last transaction are in the next one",
        COORDINATOR,
        "    done = prepared._replace(state=state, partitions=frozenset(), update_ms=now_ms)\n",
        "    done = prepared._replace(state=state, update_ms=now_ms)\n",
        f"{TESTS} -k before_it_is_complete",
    ),
    PlantedBug(
        "a zombie's init aborts its successor's transaction",
        COORDINATOR,
        "        return epoch == record.epoch or epoch == record.last_epoch\n",
        "        return True\n",
        f"{TESTS} -k zombie",
    ),
    PlantedBug(
        "markers of an earlier transaction complete a later one",
        COORDINATOR,
        "            and (record.producer_id, record.epoch) == "
        "(written.producer_id, written.epoch)\n",
        "",
        f"{TESTS} -k late_answer",
    ),
    PlantedBug(
        "a transaction that is open expires with its id",
        COORDINATOR,
        "is_unused = record.state.is_idle and record.update_ms < limit_ms",
        "is_unused = record.update_ms < limit_ms",
        f"{TESTS} -k expire",
    ),
    PlantedBug(
        "a client is told of the disk of a coordinator, which it cannot know",
        COORDINATOR,
        "        told = append_error(error)\n",
        "        told = error\n",
        "tests/broker/test_transactions_before_the_disk.py -k may_be_repeated",
    ),
    PlantedBug(
        "KIP-588: a producer whose transaction took too long cannot go on",
        COORDINATOR,
        "            epoch=bumps_to,\n            last_epoch=record.epoch,\n",
        "            epoch=bumps_to,\n            last_epoch=None,\n",
        "tests/broker/test_transactions.py -k takes_too_long",
    ),
    PlantedBug(
        "KIP-939: a transaction of two phases times out after a restart",
        COORDINATOR,
        "        if record.is_two_phase:\n            return\n",
        "",
        "tests/transaction/test_two_phase_commit.py -k 'has_no_timeout or restart'",
    ),
    PlantedBug(
        "KIP-939: a transaction of two phases times out when a disk failed",
        COORDINATOR,
        "                if record.is_two_phase:\n                    continue\n",
        "",
        "tests/transaction/test_two_phase_commit.py -k append_that_failed",
    ),
    PlantedBug(
        "KIP-939: two-phase commit is to be had where it is off",
        COORDINATOR,
        "        if request.enable2_pc and not self._config.two_phase_commit_enable:\n",
        "        if False:\n",
        "tests/transaction/test_two_phase_commit.py -k cannot_be_had",
    ),
    PlantedBug(
        "KIP-939: an init that is to keep what is prepared aborts it",
        COORDINATOR,
        "        if request.keep_prepared_txn:\n",
        "        if False:\n",
        "tests/transaction/test_two_phase_commit.py -k leaves_an_open",
    ),
    PlantedBug(
        "who waits is served last come first",
        COORDINATOR,
        "request, caller = waiting.pop(0)",
        "request, caller = waiting.pop()",
        f"{TESTS} -k order_of_coming",
    ),
    PlantedBug(
        "an administrator aborts whatever is open",
        COORDINATOR,
        "if record is None or record.producer_id != request.producer_id:",
        "if record is None:",
        f"{TESTS} -k administrator_aborts",
    ),
    PlantedBug(
        "KAFKA-20090: in the old flow an abort leaves an id without epochs",
        COORDINATOR,
        "if bumps_to >= EPOCH_MAX and following is None:",
        "if record.client_version >= TV2 and bumps_to >= EPOCH_MAX and following is None:",
        f"{TESTS} -k fences_with_the_last_epoch",
    ),
)
