"""Bugs planted in transactions: in their coordinator, their markers, the log, groups and clients.

A simulation of transactions must notice them. Whatever such a simulation found in the real code is
here too.
"""

from __future__ import annotations

from tests.simulation.bug import Bug

COORDINATOR = "transaction/coordinator.py"
MARKERS = "broker/transaction_markers.py"
PRODUCERS = "log/producers.py"
OFFSETS = "group/coordinator/offset_store.py"
CLIENT = "client/transactions.py"
CORE = "client/producer_transaction.py"

TRANSACTION_BUGS = (
    # --- the coordinator: epochs and fencing -----------------------------------------------------
    Bug(
        "KIP-890: a transaction of the new flow ends in the epoch it began with",
        COORDINATOR,
        "        epoch = record.epoch + 1 if bumps else record.epoch\n",
        "        epoch = record.epoch\n",
    ),
    Bug(
        "KAFKA-6119: a transaction that takes too long is aborted in its own epoch",
        COORDINATOR,
        "        bumps_to = record.epoch + 1\n",
        "        bumps_to = record.epoch\n",
    ),
    Bug(
        "who comes with a transactional id gets the epoch of who had it",
        COORDINATOR,
        "producer_id, epoch, previous = record.producer_id, record.epoch + 1, None",
        "producer_id, epoch, previous = record.producer_id, record.epoch, None",
    ),
    Bug(
        "KAFKA-9600: partitions are added for whoever had the id before",
        COORDINATOR,
        "    return _NONE if record.epoch == epoch else ErrorCode.PRODUCER_FENCED\n",
        "    return _NONE\n",
    ),
    Bug(
        "KAFKA-20090: a coordinator's abort leaves an id without epochs",
        COORDINATOR,
        "if bumps_to >= EPOCH_MAX and following is None:",
        "if False:",
    ),
    Bug(
        "KAFKA-5231: who left a transaction open is not aborted by its successor",
        COORDINATOR,
        """            if self._abort(draft, record, "its id was initialised again"):
                self._park(draft, record, request, caller)
            else:""",
        """            if record.start_ms is not None:
                self._reply_init(draft, caller, record)
            else:""",
    ),
    # --- the coordinator: decisions --------------------------------------------------------------
    Bug(
        "a commit is written down as an abort",
        COORDINATOR,
        "commit=record.state is TransactionState.PREPARE_COMMIT,",
        "commit=record.state is TransactionState.PREPARE_ABORT,",
    ),
    Bug(
        "a commit that finds an abort is told that all is well",
        COORDINATOR,
        "    return ErrorCode.PRODUCER_FENCED if request.committed else _OTHER_OUTCOME\n",
        "    return ErrorCode.NONE\n",
    ),
    Bug(
        "only the partitions added last belong to a transaction",
        COORDINATOR,
        "partitions = request.partitions | record.partitions if is_open else request.partitions",
        "partitions = request.partitions",
    ),
    Bug(
        "after a restart nobody writes the markers of what was decided",
        COORDINATOR,
        """            if record.state.is_prepared:
                self._order_markers(draft, record)
            elif record.state is _ONGOING:""",
        """            if record.state is _ONGOING:""",
    ),
    Bug(
        "after a restart nobody watches how long a transaction takes",
        COORDINATOR,
        """            elif record.state is _ONGOING:
                self._arm_timeout(record)
        return""",
        """        return""",
    ),
    # --- markers ---------------------------------------------------------------------------------
    Bug(
        "what was aborted as unknown is taken for what is sent again",
        MARKERS,
        "                    epoch += 1\n",
        "                    epoch += 0\n",
    ),
    Bug(
        "at a start no partition is searched for what no coordinator knows",
        MARKERS,
        "        count = 0\n        for partition in partitions:\n",
        "        count = 0\n        for partition in ():\n",
    ),
    Bug(
        "a transaction is complete before its markers are stored",
        MARKERS,
        "        self._syncer.register(partition.log, result.end_offset, then)\n",
        "        self._syncer.register(partition.log, result.end_offset, None)\n"
        "        then(ErrorCode.NONE)\n",
    ),
    # --- the log ---------------------------------------------------------------------------------
    Bug(
        "the end of a transaction shows before its marker is stored",
        PRODUCERS,
        "        heappush(self._ended, (first_offset, offset))\n",
        "",
    ),
    Bug(
        "what was aborted is not in the index",
        PRODUCERS,
        "        if marker.commit:\n            return None\n        stable",
        "        if True:\n            return None\n        stable",
    ),
    Bug(
        "a snapshot forgets which transactions are open",
        PRODUCERS,
        "        found.open = OrderedDict(sorted(begun))\n",
        "        found.open = OrderedDict()\n",
    ),
    Bug(
        "readers of committed records get what is undecided",
        "log/partition.py",
        "        return max(unstable, self.start_offset)\n",
        "        return high_watermark\n",
    ),
    Bug(
        "KAFKA-12671: a batch needs no transaction",
        "broker/handlers/transactional_produce.py",
        "            error = self._verdict(frozenset({partition}))\n",
        "            error = ErrorCode.NONE\n",
    ),
    # --- groups ----------------------------------------------------------------------------------
    Bug(
        "offsets of a transaction count at once",
        OFFSETS,
        "        if record.producer_id is None:\n",
        "        if True:\n",
    ),
    Bug(
        "offsets of an aborted transaction count",
        OFFSETS,
        "            if not commit:\n                continue\n",
        "",
    ),
    Bug(
        "an offset that a transaction will decide is told as it is",
        OFFSETS,
        "        return any(\n            tp in self._pending[producer_id][group_id]\n",
        "        return False and any(\n            tp in self._pending[producer_id][group_id]\n",
    ),
    # --- the client ------------------------------------------------------------------------------
    Bug(
        "KAFKA-14053: a commit does not wait for what was sent",
        CLIENT,
        "        await self._sender.drain()\n        refusal = self.core.refusal("
        '"commit_transaction")',
        '        refusal = self.core.refusal("commit_transaction")',
    ),
    Bug(
        "a batch that failed is not missed",
        CORE,
        "        elif self.state in _FAILS | {S.ABORTABLE_ERROR}:\n            self.failed(",
        "        elif self.state is S.ABORTABLE_ERROR:\n            self.failed(",
    ),
    Bug(
        "a producer without a connection falls back to the old flow",
        "client/cluster.py",
        "heard = (link.last for link in self._links)",
        "heard = (link.current for link in self._links)",
    ),
    Bug(
        "an abort during which something was refused cannot go on",
        CORE,
        "            if self.state is S.ABORTING:\n                return",
        "            if False:\n                return",
    ),
    # --- compaction ------------------------------------------------------------------------------
    Bug(
        "a record of an aborted transaction takes the place of a committed one",
        "log/cleaning.py",
        "            elif not transactions.drops(header):\n                keys.note(",
        "            elif transactions.drops(header) in (True, False):\n                keys.note(",
    ),
    Bug(
        "what no coordinator has decided is compacted",
        "log/cleaning.py",
        "    limit = min(log.last_stable_offset, log.synced_offset)\n",
        "    limit = log.synced_offset\n",
    ),
    Bug(
        "an abort stays in the index when its marker is gone",
        "log/cleaned_transactions.py",
        "        if was_seen and entry is not None:\n",
        "        if entry is not None:\n",
    ),
    Bug(
        "compaction forgets who was fenced",
        "log/cleaning.py",
        "        must_stay = is_last or (producer is not None and producer.is_in(header))\n",
        "        must_stay = is_last\n",
    ),
)
