"""Bugs planted in transactions of the clients, see ``tests/planted``."""

from __future__ import annotations

from tests.planted.bugs import PlantedBug


def _by(module: str, which: str) -> str:
    """The tests of a module whose names contain ``which``, against our broker alone."""
    return f"tests/client/test_{module}.py -m 'not kafka' -k '{which}'"


PLANTED = (
    PlantedBug(
        "a block commits what it has aborted itself",
        "client/producer.py",
        '            if not self._need_transactions("commit_transaction").has_ended:\n',
        "            if True:\n",
        _by("transactions", "ends_its_transaction_itself"),
    ),
    PlantedBug(
        "who asks for too much time is told to close, not what to change",
        "errors.py",
        "        if code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:\n",
        "        if False:\n",
        "tests/test_errors.py -k transaction_timeout",
    ),
    # Transactions: states and codes
    PlantedBug(
        "a transaction that failed is committed",
        "client/producer_transaction.py",
        "        S.PREPARED: S.COMMITTING,\n",
        "        S.PREPARED: S.COMMITTING,\n        S.ABORTABLE_ERROR: S.COMMITTING,\n",
        _by("producer_transaction", "every_call"),
    ),
    PlantedBug(
        "close() aborts what was prepared",
        "client/transactions.py",
        "if self.core.state in (ProducerState.IN_TRANSACTION, ProducerState.ABORTABLE_ERROR):",
        "if self.core.state in (ProducerState.PREPARED, ProducerState.ABORTABLE_ERROR):",
        _by("prepared_transactions", "outlives_its_producer"),
    ),
    PlantedBug(
        "a transaction counts as prepared before all of it is stored",
        "client/transactions.py",
        "    async def _prepare(self) -> PreparedTransaction | None:\n"
        "        await self._sender.drain()\n",
        "    async def _prepare(self) -> PreparedTransaction | None:\n",
        _by("prepared_transactions", "may_end_what_it_prepared"),
    ),
    PlantedBug(
        "a partition that was added by itself is left to the next transaction",
        "client/producer_transaction.py",
        "        self.partitions.add(tp)\n        self._may_exist = True\n",
        "        self.partitions.add(tp)\n",
        _by("producer_transaction", "implicit_add"),
    ),
    PlantedBug(
        "the next transaction believes its partitions to be added",
        "client/producer_transaction.py",
        "        self.partitions.clear()\n",
        "",
        _by("producer_transaction", "leaves_nothing"),
    ),
    PlantedBug(
        "a coordinator that forgot the producer is asked to abort",
        "client/producer_transaction.py",
        "EndPlan(exists and not self._is_forgotten, bump)",
        "EndPlan(exists, bump)",
        _by("producer_transaction", "forgot"),
    ),
    PlantedBug(
        "a commit the coordinator knows nothing of is a success",
        "client/producer_transaction.py",
        "        if self.state is not S.ABORTING:\n            return False\n",
        "",
        _by("producer_transaction", "never_ends_without"),
    ),
    PlantedBug(
        "a fenced producer is told to abort and go on",
        "client/transaction_reactions.py",
        "    E.PRODUCER_FENCED: R.FENCED,\n    E.TRANSACTION_ABORTABLE",
        "    E.PRODUCER_FENCED: R.ABORT,\n    E.TRANSACTION_ABORTABLE",
        _by("transaction_reactions", "PRODUCER_FENCED"),
    ),
    PlantedBug(
        "a member the group left behind ends the producer",
        "client/transaction_reactions.py",
        "        E.ILLEGAL_GENERATION: R.ABORT,\n",
        "",
        _by("transaction_reactions", "ILLEGAL_GENERATION"),
    ),
    # Transactions: order and what is asked
    PlantedBug(
        "a commit does not wait for what was sent",
        "client/transactions.py",
        'await self._sender.drain()\n        refusal = self.core.refusal("commit_transaction")',
        'refusal = self.core.refusal("commit_transaction")',
        _by("transactions", "sent_whole"),
    ),
    PlantedBug(
        "an abort overtakes what is under way",
        "client/transactions.py",
        "        await self._sender.drain()\n        if self._adding",
        "        if self._adding",
        _by("transactions", "under_way_is_awaited"),
    ),
    PlantedBug(
        "the newer protocol is spoken to a cluster that is at the older",
        "client/transactions.py",
        "feature_level(_FEATURE) >= 2",
        "feature_level(_FEATURE) >= 1",
        _by("transactions", "versions_are"),
    ),
    PlantedBug(
        "close leaves a transaction open until it times out",
        "client/transactions.py",
        "        if self.core.state in (ProducerState.IN_TRANSACTION, "
        "ProducerState.ABORTABLE_ERROR):\n",
        "        if False:\n",
        _by("transactions", "close_inside"),
    ),
    PlantedBug(
        "offsets are committed as nobody, so a zombie's count",
        "client/transactions.py",
        "            request.member_id = group.member_id\n",
        "",
        _by("transactions", "identity_of_the_member"),
    ),
    PlantedBug(
        "a late EndTxn of the older protocol may end the next transaction",
        "client/transactions.py",
        "                on_unanswered=self.core.unconfirmed_end,\n",
        "",
        _by("transactions", "asked_for_again"),
    ),
    PlantedBug(
        "a commit that took effect fails with the next epoch",
        "client/transactions.py",
        "                if not (commit and self.core.is_end_confirmed):\n",
        "                if True:\n",
        _by("transactions", "new_epoch_that_is_refused"),
    ),
    PlantedBug(
        "a confirmed end is asked for again by who is an epoch behind",
        "client/transactions.py",
        "            self.core.end_confirmed()\n",
        "",
        _by("transactions", "end_that_was_confirmed"),
    ),
    PlantedBug(
        "the epoch in the answer to EndTxn is not taken",
        "client/transactions.py",
        "        if answer.producer_id >= 0:\n",
        "        if False:\n",
        _by("transactions", "each_transaction_has"),
    ),
    PlantedBug(
        "records are taken while the outcome of a commit is unknown",
        "client/transactions.py",
        '        self._shut()\n        with self._tally.timing("txn-commit"):\n',
        '        with self._tally.timing("txn-commit"):\n',
        _by("transactions", "can_only_be_repeated"),
    ),
    PlantedBug(
        "a concurrent transaction is an error",
        "client/transactions.py",
        "                elif reaction is not TransactionReaction.RETRY:",
        "                elif reaction is not None:",
        _by("transactions", "busy_loop"),
    ),
    PlantedBug(
        "Arrow rows are sent beside the transaction",
        "client/sender.py",
        "        batch[_ATTRIBUTES_AT] |= _TRANSACTIONAL\n",
        "        pass\n",
        _by("transactions", "arrow_rows"),
    ),
    PlantedBug(
        "a transaction is committed without a batch that failed",
        "client/sender.py",
        "            self.on_batch_failed(batch, error)\n",
        "            pass\n",
        _by("transactions", "one_to_abort"),
    ),
    PlantedBug(
        "sequences go on in the next epoch",
        "client/partition_queue.py",
        "        self.producer = producer\n        self.next_sequence = 0\n",
        "        self.producer = producer\n",
        _by("transactions", "each_transaction_has"),
    ),
    PlantedBug(
        "partitions are sent to before they are added",
        "client/producer_transaction.py",
        "        if self.is_v2 or tp in self.partitions:\n",
        "        if True:\n",
        _by("transactions", "sent_whole"),
    ),
    # Reading what is committed
    PlantedBug(
        "a consumer does not ask for what is committed",
        "client/fetcher.py",
        "        request.isolation_level = isolation(config.isolation_level)\n",
        "",
        _by("read_committed", "asks_for_and_returns"),
    ),
    PlantedBug(
        "aborted transactions are not handed on to the reader",
        "client/fetcher.py",
        "FetchedChunk(state, view, end, epochs, lease, aborted)",
        "FetchedChunk(state, view, end, epochs, lease)",
        _by("read_committed", "asks_for_and_returns"),
    ),
    PlantedBug(
        "lag counts what cannot be read yet",
        "client/fetcher.py",
        "partition.last_stable_offset if self._is_committed else partition.high_watermark",
        "partition.high_watermark",
        _by("read_committed", "asks_for_and_returns"),
    ),
    PlantedBug(
        "ends are those of the log, whatever can be read",
        "client/offsets.py",
        "        isolation_level=isolation(isolation_level),\n",
        "",
        _by("read_committed", "asks_for_and_returns"),
    ),
    PlantedBug(
        "the aborted are forgotten when a chunk is opened again",
        "client/fetch_buffer.py",
        "return Chunk(topic, partition, self.data, start, end, self.aborted)",
        "return Chunk(topic, partition, self.data, start, end)",
        _by("read_committed", "seek_into"),
    ),
    PlantedBug(
        "every log with markers is decoded twice",
        "client/fetch_buffer.py",
        "        if not is_all and 0 < arrow_batch",
        "        if 0 < arrow_batch",
        _by("read_committed", "decoded_once"),
    ),
    # Transactions as administrators see them
    PlantedBug(
        "a transaction its coordinator knows hangs",
        "client/transaction_admin.py",
        "(one.producer.producer_id, one.topic_partition) not in owned]",
        "one]",
        _by("transaction_requests", "counts_as_its_own"),
    ),
    PlantedBug(
        "a hanging transaction is committed",
        "client/transaction_admin.py",
        "        transaction_result=False,\n",
        "        transaction_result=True,\n",
        _by("transaction_requests", "is_a_marker"),
    ),
    PlantedBug(
        "an administrator waits for transactions of others",
        "client/offsets.py",
        "        request.require_stable = require_stable\n",
        "        request.require_stable = True\n",
        _by("transaction_requests", "about_to_be_replaced"),
    ),
)
