"""Bugs planted in the clients, see ``tests/planted``."""

from __future__ import annotations

from tests.client import (
    planted_async,
    planted_compiled,
    planted_members,
    planted_metrics,
    planted_processing,
    planted_settings,
    planted_transactions,
)
from tests.planted.bugs import PlantedBug

HERE = "tests/client/test_"


def _by(module: str, which: str) -> str:
    """The tests of a module whose names contain ``which``, against our broker alone."""
    return f"{HERE}{module}.py -m 'not kafka' -k '{which}'"


PLANTED = (
    PlantedBug(
        "an attempt that is cut short by the timeout hides why the others failed",
        "client/cluster.py",
        "if failure is None or not (deadline.has_passed and _is_silence(error)):",
        "if error is not failure:",
        "tests/client/test_virtual_time.py -k cut-short",
    ),
    PlantedBug(
        "a position nobody polled is committed",
        "client/positions.py",
        "            if state.position is not None and state.position != state.found_at\n",
        "            if state.position is not None\n",
        "tests/client/test_commits.py -k 'never_polled and shoal'",
    ),
    PlantedBug(
        "a position that was polled is not committed before a record comes",
        "client/positions.py",
        "        for state in self:\n            state.found_at = None\n",
        "        pass\n",
        "tests/client/test_commits.py -k 'user_knows_of and shoal'",
    ),
    # Ranges
    PlantedBug(
        "a range shows what was aborted",
        "client/ranges.py",
        "start, min(upto, end), aborted))",
        "start, min(upto, end)))",
        _by("committed_ranges", "nothing_of_aborted"),
    ),
    PlantedBug(
        "a range is asked for without its isolation",
        "client/ranges.py",
        "            request.isolation_level = self._plan.isolation\n",
        "",
        _by("committed_ranges", "nothing_of_aborted"),
    ),
    PlantedBug(
        "a range ends where a transaction is open",
        "client/ranges.py",
        "        if stable >= end:\n            return None\n",
        "        return None\n",
        _by("committed_ranges", "holds_back_is_named"),
    ),
    PlantedBug(
        "a range with a gap before an open transaction is waited for in vain",
        "client/ranges.py",
        "            for tp in bare:\n                del self._plan.left[tp]\n",
        "            pass\n",
        _by("committed_ranges", "last_records_were_compacted"),
    ),
    # Positions and what is buffered for them
    PlantedBug(
        "a fetch answer from before a seek is taken",
        "client/fetcher.py",
        "state is None or state.lap != lap or self._positions",
        "state is None or self._positions",
        _by("late_answers", "was_before_is_dropped"),
    ),
    PlantedBug(
        "a seek keeps what is buffered",
        "client/positions.py",
        "        self.found_at = None\n        self.lap += 1\n",
        "        self.found_at = None\n",
        _by("reading_topics", "seek_leaves"),
    ),
    PlantedBug(
        "a reset keeps what is buffered",
        "client/positions.py",
        "        self.is_doubtful = False\n        self.lap += 1\n        self.read_from = None\n",
        "        self.is_doubtful = False\n        self.read_from = None\n",
        _by("late_answers", "end_is_looked_for"),
    ),
    PlantedBug(
        "held partitions are polled during the commit before a rebalance",
        "client/consumer_core.py",
        "                state.is_held = state.tp in held",
        "                state.is_held = False",
        _by("callbacks", "nothing_is_read_between"),
    ),
    PlantedBug(
        "records of held partitions are returned",
        "client/fetch_buffer.py",
        "state.is_paused or state.is_held or state.is_doubtful)",
        "state.is_paused or state.is_doubtful)",
        _by("inside", "gone_or_held"),
    ),
    PlantedBug(
        "what was cut off the log is still returned",
        "client/fetch_buffer.py",
        "state.is_paused or state.is_held or state.is_doubtful)",
        "state.is_paused or state.is_held)",
        _by("late_answers", "may_be_cut_off"),
    ),
    PlantedBug(
        "the position stays before offsets that compaction removed",
        "client/fetch_buffer.py",
        "            state.position = max(state.position, chunk.next_offset)\n",
        "            pass\n",
        _by("inside", "records_are_gone"),
    ),
    PlantedBug(
        "records carry no leader epoch into the position",
        "client/fetch_buffer.py",
        "        self.state.leader_epoch = last.leader_epoch\n",
        "",
        _by("inside", "has_the_leader_epoch"),
    ),
    PlantedBug(
        "columns note the epoch of the row that follows",
        "client/fetch_buffer.py",
        "            if first < position:",
        "            if first <= position:",
        _by("inside", "has_the_leader_epoch"),
    ),
    PlantedBug(
        "the second part of an answer is not deserialized",
        "client/fetch_buffer.py",
        "            self._records = []\n            self.start = self.deserialized = 0\n"
        "            records = next",
        "            self._records = []\n            self.start = 0\n            records = next",
        _by("inside", "opened_in_several_parts"),
    ),
    PlantedBug(
        "a key is deserialized twice when its value fails",
        "client/fetch_buffer.py",
        "                    key = self._key(key)",
        "                    record.key = key = self._key(key)",
        _by("inside", "deserialized_once"),
    ),
    PlantedBug(
        "a deserializer error hides the good records before it",
        "client/fetch_buffer.py",
        "                if index > chunk.start:\n                    return index\n",
        "",
        _by("poison", "every_poll_names"),
    ),
    PlantedBug(
        "what cannot be read is overtaken by its own partition",
        "client/fetch_buffer.py",
        "            if other.state is chunk.state:",
        "            if other is chunk:",
        _by("inside", "overtaken"),
    ),
    PlantedBug(
        "columns take one row twice where two answers meet",
        "client/fetch_buffer.py",
        "            start = ends.get(state, state.position)",
        "            start = state.position",
        _by("inside", "two_answers"),
    ),
    PlantedBug(
        "columns lose what did not fit the Arrow batch",
        "client/fetch_buffer.py",
        "        if not is_all and 0 < arrow_batch.num_rows < _rows_at_most(wanted):",
        "        if False:",
        _by("inside", "come_in_parts"),
    ),
    PlantedBug(
        "a loop reads to the end of its answer before it polls",
        "client/consumer.py",
        "                if session.is_due:\n                    break\n",
        "",
        _by("iterating", "loop_calls_nothing"),
    ),
    PlantedBug(
        "an awaiting loop reads to the end of its answer before it polls",
        "client/async_consumer.py",
        "                if session.is_due:\n                    break\n",
        "",
        _by("iterating", "loop_calls_nothing"),
    ),
    # Fetching
    PlantedBug(
        "a reset throws away what is not read yet",
        "client/fetcher.py",
        "        if state.position != state.fetch_offset:\n            return ",
        "        if False:\n            return ",
        _by("late_answers", "unread_comes_before_the_reset"),
    ),
    PlantedBug(
        "an error of a position that was left is raised",
        "client/fetcher.py",
        "            if state is not None and state.lap == lap:",
        "            if state is not None:",
        _by("late_answers", "late_error and kept"),
    ),
    PlantedBug(
        "damage is told before the good records in front of it",
        "client/fetcher.py",
        "        if state.position == state.fetch_offset:  # else",
        "        if True:  # else",
        _by("late_answers", "before_the_damage"),
    ),
    PlantedBug(
        "an answer's memory is used again while it is read",
        "client/fetch_buffer.py",
        "        if lease is not None:\n            lease.hold()\n",
        "",
        _by("leases", "records_keep and False"),
    ),
    PlantedBug(
        "a topic made anew is fetched in the old one's session",
        "client/fetch_session.py",
        "            if was is not None and self._replaces(was, want):",
        "            if False:",
        _by("fetch_session", "replaces"),
    ),
    PlantedBug(
        "a replica that is behind makes a position reset",
        "client/fetcher.py",
        "        if state.read_from is not None:\n            state.read_from = None  # the",
        "        if False:\n            state.read_from = None  # the",
        _by("nearest_replica", "is_behind"),
    ),
    PlantedBug(
        "a late committed offset overwrites a seek",
        "client/start_positions.py",
        "            if state.lap != lap or not state.needs_position:",
        "            if False:",
        _by("history_positions", "7703 and OffsetFetch"),
    ),
    PlantedBug(
        "a late end of the log overwrites a seek",
        "client/start_positions.py",
        "                if state.lap == lap and answer is not None:",
        "                if answer is not None:",
        _by("history_positions", "7703 and ListOffsets"),
    ),
    PlantedBug(
        "a cut that was found moves a position that was sought since",
        "client/position_validation.py",
        "            if state.lap != cut.lap or state.position is None:",
        "            if state.position is None:",
        _by("late_answers", "cut_that_was_found"),
    ),
    # Polls and commits
    PlantedBug(
        "an automatic commit covers the poll it happens in",
        "client/polling.py",
        "        if not calm_s:\n"
        "            yield session.prepare(max(0.0, until - time.monotonic()))\n"
        "        taken = take()\n",
        "        taken = take()\n"
        "        if not calm_s:\n"
        "            yield session.prepare(max(0.0, until - time.monotonic()))\n",
        _by("commits", "earlier_polls"),
    ),
    PlantedBug(
        "a slow poller is put out of its group",
        "client/consumer_core.py",
        "min(config.heartbeat_interval_ms, config.max_poll_interval_ms / 3)",
        "config.heartbeat_interval_ms",
        _by("polling", "however_short"),
    ),
    PlantedBug(
        "an automatic commit that failed waits for the next interval",
        "client/commits.py",
        "            self._auto_at = now + self._config.retry_backoff_ms / 1000\n",
        "            self._auto_at = now + 3600\n",
        _by("late_answers", "next_interval"),
    ),
    PlantedBug(
        "a later commit overtakes an earlier one",
        "client/commits.py",
        "            async with self._turn(deadline):\n                sent",
        "            if True:\n                sent",
        _by("late_answers", "not_overtaken"),
    ),
    PlantedBug(
        "a sync commit returns before the callbacks of earlier ones",
        "client/commits.py",
        "        is_drained = await self.finish_async(deadline)\n",
        "        is_drained = True\n",
        _by("history", "5730"),
    ),
    PlantedBug(
        "an asynchronous commit follows what its caller does to the dict",
        "client/commits.py",
        "self._commit_async(dict(offsets), callback)",
        "self._commit_async(offsets, callback)",
        _by("late_answers", "changed_afterwards"),
    ),
    PlantedBug(
        "a callback that raises while closing leaves a member behind",
        "client/consumer_core.py",
        "            except Exception as error:  # noqa: BLE001 - the rest must still be closed\n"
        "                failures.append(error)\n",
        "            except Exception as error:  # noqa: BLE001 - the rest must still be closed\n"
        "                failures.append(error)\n"
        "                break\n",
        _by("commits", "nobody_in_the_group"),
    ),
    PlantedBug(
        "commits carry no leader epoch",
        "client/offsets.py",
        "committed_leader_epoch=-1 if one.leader_epoch is None else one.leader_epoch",
        "committed_leader_epoch=-1",
        _by("truncation", "committed_offset_is_checked"),
    ),
    PlantedBug(
        "interceptors do not hear of automatic commits",
        "client/commits.py",
        "            self._auto = None\n        if outcome.verdict is CommitVerdict.DONE:\n"
        "            self._committed(offsets)\n",
        "            self._auto = None\n        if outcome.verdict is CommitVerdict.DONE:\n"
        "            pass\n",
        _by("commits", "hear_of_automatic"),
    ),
    # The group
    PlantedBug(
        "who leaves waits behind its own join",
        "client/membership.py",
        "lane=Lane.MAIN if isinstance(request, LeaveGroupRequest) else Lane.GROUP",
        "lane=Lane.GROUP",
        _by("groups", "behind_its_own_join"),
    ),
    PlantedBug(
        "a callback that was woken counts as done",
        "client/membership.py",
        "            self.member.callback_interrupted()\n            raise\n",
        "            self.perform(self.member.callback_done(self.now_ms, None))\n"
        "            raise\n",
        _by("wakeup_nested", "let_through"),
    ),
    PlantedBug(
        "partitions stay when their listener raises",
        "client/consumer_core.py",
        "                finally:  # whatever else it raises, they are gone\n",
        "                else:\n",
        _by("callbacks", "error_before_the_join"),
    ),
    PlantedBug(
        "who was thrown out is told to revoke",
        "client/consumer_core.py",
        'what = "lost" if isinstance(step, Lost) else "revoked"',
        'what = "revoked"',
        _by("callbacks", "thrown_out_and_ends"),
    ),
    PlantedBug(
        "the assigned callback comes before the partitions are ours",
        "client/consumer_core.py",
        "                self.positions.own(owned)\n"
        "                if self._committer is not None:\n"
        "                    self._committer.restart_auto()\n"
        '                await self._tell("assigned", partitions)\n',
        '                await self._tell("assigned", partitions)\n'
        "                self.positions.own(owned)\n",
        _by("groups", "may_use_the_consumer"),
    ),
    PlantedBug(
        "who ends while it joins leaves a stranger behind",
        "client/membership.py",
        "        if self._nameless:\n",
        "        if False:\n",
        _by("groups", "hears_its_name"),
    ),
    PlantedBug(
        "a pattern takes internal topics",
        "client/membership.py",
        "    internal = frozenset(name for name in names if metadata.topics[name].is_internal)",
        "    internal: frozenset[str] = frozenset()",
        _by("groups", "internal_topics"),
    ),
    # Producing
    PlantedBug(
        "without idempotence a retry is overtaken",
        "client/sender.py",
        "config.max_in_flight_requests_per_connection if config.is_idempotent else 1",
        "config.max_in_flight_requests_per_connection",
        _by("producing", "one_of_several"),
    ),
    PlantedBug(
        "a producer the broker does not know sends several batches at once",
        "client/sender.py",
        "(queue.is_recovering or not queue.is_known)",
        "queue.is_recovering",
        _by("producing", "passing_errors or lost_replies or cut_connections"),
    ),
    PlantedBug(
        "a batch that may be stored is numbered anew",
        "client/partition_queue.py",
        "        lost = [batch for batch in self.waiting if batch.copies]\n"
        "        self.waiting = deque(batch for batch in self.waiting if not batch.copies)\n",
        "        lost: list[ProducerBatch] = []\n",
        _by("producing", "under_another_number"),
    ),
    PlantedBug(
        "a timeout counts as not stored",
        "client/reactions.py",
        "        E.NOT_ENOUGH_REPLICAS,\n        E.UNKNOWN_TOPIC_ID,",
        "        E.NOT_ENOUGH_REPLICAS,\n        E.REQUEST_TIMED_OUT,\n        E.UNKNOWN_TOPIC_ID,",
        _by("producing", "under_another_number"),
    ),
    PlantedBug(
        "what suffers for others uses up its retries",
        "client/sender.py",
        "            # It suffers for what became of others: that is no attempt of its own.\n"
        "            batch.attempts -= 1\n",
        "",
        _by("producing", "no_retry"),
    ),
    PlantedBug(
        "a batch at the broker outlives the delivery timeout",
        "client/sender.py",
        "            for batch in [one for one in queue.in_flight if one.created_at < before]:",
        "            for batch in []:",
        _by("producing", "takes_its_time"),
    ),
    PlantedBug(
        "sequences run over their 31 bits",
        "client/partition_queue.py",
        "            self.next_sequence = (self.next_sequence + batch.record_count) % _SEQUENCES\n",
        "            self.next_sequence = self.next_sequence + batch.record_count\n",
        _by("partition_queue", "behind_the_last_sequence"),
    ),
    PlantedBug(
        "failed batches go again in the order of their failures",
        "client/partition_queue.py",
        "        self.failed.sort(key=lambda batch: batch.number)\n",
        "",
        _by("partition_queue", "order_they_were_made"),
    ),
    PlantedBug(
        "a gap is believed while older batches are open",
        "client/partition_queue.py",
        "self.in_flight[0] is batch and not self.failed",
        "self.in_flight[0] is batch",
        _by("producing", "one_of_several and all"),
    ),
    PlantedBug(
        "a stamped batch has the checksum of before",
        "client/sender.py",
        "        _CRC.pack_into(batch, _CRC_AT, crc32c(covered))",
        "        crc32c(covered)",
        _by("inside", "stamp"),
    ),
    PlantedBug(
        "closing forgets records that wait for a retry",
        "client/sender.py",
        "            for batch in (*queue.in_flight, *queue.failed, *queue.waiting):",
        "            for batch in (*queue.in_flight, *queue.waiting):",
        _by("producing", "waits_for_others"),
    ),
    PlantedBug(
        "a full buffer waits for linger_ms",
        "client/accumulator.py",
        "            or self.intake.used_bytes >= self._memory_bytes\n            or now",
        "            or now",
        _by("producing", "for_company"),
    ),
    PlantedBug(
        "records join a batch that was given up",
        "client/accumulator.py",
        "                    batch = queue.batches.popleft()\n"
        "                    if batch is queue.open:\n"
        "                        self._close(queue, tp)\n"
        "                    late.append(batch)\n",
        "                    batch = queue.batches.popleft()\n"
        "                    late.append(batch)\n",
        _by("producing", "never_sent"),
    ),
    PlantedBug(
        "columns do not count as unsent memory",
        "client/accumulator.py",
        "            self.intake.change(len(data))\n",
        "",
        _by("arrow", "buffer_memory"),
    ),
    PlantedBug(
        "memory of a failed batch is used again while it is sent",
        "client/producer_batch.py",
        "        if self.lease is not None and error is None:",
        "        if self.lease is not None:",
        _by("leases", "not_if_it_failed"),
    ),
    PlantedBug(
        "memory is used again while a batch beside the first is sent",
        "client/leases.py",
        "        self._lease.hold()\n        return self._lease",
        "        return self._lease",
        _by("leases", "nobody_looks_at_it"),
    ),
    PlantedBug(
        "flush waits for what others send meanwhile",
        "client/accumulator.py",
        "lambda: not self.is_unsettled_before(end), timeout_s)",
        "lambda: not self._unsettled, timeout_s)",
        _by("shared_producer", "after_it_began"),
    ),
    PlantedBug(
        "the rows of a partition change their order",
        "client/arrow_batches.py",
        '    order = np.argsort(small, kind="stable")',
        "    order = np.argsort(small)",
        _by("arrow", "stay_in_order"),
    ),
    PlantedBug(
        "a long key of odd length goes to another partition as a column",
        "client/key_hashes.py",
        "            h[rows] = (h[rows] ^ tail) * m",
        "            h[rows] = h[rows] ^ (tail * m)",
        _by("key_hashes", "column_of_keys"),
    ),
    PlantedBug(
        "a slice of keys is hashed from the beginning of its memory",
        "records/encoding.py",
        "    place.offsets = offsets.address + 4 * column.offset",
        "    place.offsets = offsets.address",
        _by("key_hashes", "of_one_size"),
    ),
    # Connections and the cluster
    PlantedBug(
        "a large answer lies in the memory of the one before it",
        "client/connection.py",
        "        lease = self._pending[ahead].lease if ahead",
        "        lease = self._pending[0].lease if ahead",
        _by("leases", "come_together"),
    ),
    PlantedBug(
        "an answer with another correlation id is taken",
        "client/connection.py",
        "        if decode_correlation_id(frame) != pending.correlation_id:",
        "        if False:",
        _by("error_codes", "correlation"),
    ),
    PlantedBug(
        "only the oldest request times out",
        "client/connection.py",
        "        first = min(self._pending, key=lambda pending: pending.due)",
        "        first = self._pending[0]",
        _by("virtual_time", "exactly_as_long"),
    ),
    PlantedBug(
        "requests under way wait on when the connection is lost",
        "client/connection.py",
        "            if request.future is not None and not request.future.done():",
        "            if request.future is not None and request.future.done():",
        _by("late_answers", "is_cut_fail_at_once"),
    ),
    PlantedBug(
        "who gives up takes the connection from the others",
        "client/broker_links.py",
        "        return await asyncio.shield(self._opening)",
        "        return await self._opening",
        _by("late_answers", "gives_up_waiting"),
    ),
    PlantedBug(
        "a connection that waits for an answer is idle",
        "client/broker_links.py",
        "            if current is None or current.in_flight:",
        "            if current is None:",
        _by("late_answers", "not_idle"),
    ),
    PlantedBug(
        "a broker that drops connections is stormed",
        "client/broker_links.py",
        "            self._not_before = loop.time() + self._backoff.next_s()\n",
        "",
        _by("late_answers", "once_a_second"),
    ),
    PlantedBug(
        "an old answer brings an old leader back",
        "client/metadata.py",
        "    return old if new.leader_epoch < old.leader_epoch else new",
        "    return new",
        _by("inside", "older_answer"),
    ),
    PlantedBug(
        "a topic made anew keeps the epochs of the old one",
        "client/metadata.py",
        "    same = old is not None and old.topic_id == topic_id",
        "    same = old is not None",
        _by("inside", "made_anew"),
    ),
    PlantedBug(
        "brokers that all moved are never found again",
        "client/cluster.py",
        "        for addresses in (known, self._bootstrap):\n"
        "            rested = [a for a in addresses if not self._links.to(a).is_resting]\n"
        "            if rested:\n"
        "                return self._links.to(random.choice(rested))\n"
        "        return self._links.to(random.choice(known + self._bootstrap))\n",
        "        return self._links.to(random.choice(known or self._bootstrap))\n",
        _by("inside", "all_moved"),
    ),
    PlantedBug(
        "a coordinator that went away is asked again and again",
        "client/cluster.py",
        "        except (ConnectionFailedError, RequestTimeoutError):\n"
        "            self.forget_coordinator(key)\n"
        "            raise\n",
        "        except (ConnectionFailedError, RequestTimeoutError):\n            raise\n",
        _by("inside", "hangs_up"),
    ),
    PlantedBug(
        "a topic that was deleted is made again by the metadata of its producer",
        "client/cluster.py",
        "            self._interest = self.in_use()\n",
        "            self._interest = (self._interest or set()) | self.in_use()\n",
        _by("producing", "not_made_again"),
    ),
    PlantedBug(
        "a topic that is not there yet is looked for every five minutes",
        "client/cluster.py",
        "        if self._awaits_a_topic():\n            self.mark_stale()\n",
        "",
        _by("late_answers", "not_there_yet"),
    ),
    # Security
    PlantedBug(
        "the name in a broker's certificate is not looked at",
        "client/security.py",
        "    context.check_hostname = config.ssl_check_hostname\n",
        "    context.check_hostname = False\n",
        _by("secure", "another_host"),
    ),
    PlantedBug(
        "a server need not prove that it knows the password",
        "client/security.py",
        "    if not hmac.compare_digest(expected, given):",
        "    if given and not hmac.compare_digest(expected, given):",
        _by("security", "cannot_prove"),
    ),
    PlantedBug(
        "a server may ask for a single iteration",
        "client/security.py",
        "_ITERATIONS_MIN, _ITERATIONS_MAX = 4096,",
        "_ITERATIONS_MIN, _ITERATIONS_MAX = 1,",
        _by("security", "cheats_at_first"),
    ),
    PlantedBug(
        "a refused login is taken for a step of it",
        "client/connection.py",
        '            raise error_for(answer.error_code, answer.error_message or "")',
        "            return",
        _by("secure", "wrong_one_does_not and PLAIN"),
    ),
    PlantedBug(
        "a config shows its password",
        "client/config.py",
        "'***' if is_secret(field.name) else",
        "'***' if 'secret' in field.name else",
        _by("config", "secret"),
    ),
    # What users plug in, ask and set
    PlantedBug(
        "an interceptor that raises takes the records with it",
        "client/listeners.py",
        '        except Exception:\n            logger.exception("an interceptor raised")\n',
        '        except Exception:\n            logger.exception("an interceptor raised")\n'
        "            records = []\n",
        _by("reading_topics", "as_they_were"),
    ),
    PlantedBug(
        "numbers are written in the machine's order of bytes",
        "client/serializers.py",
        'serialize_int, deserialize_int = _number(">i")',
        'serialize_int, deserialize_int = _number("=i")',
        _by("serializers", "java"),
    ),
    PlantedBug(
        "a heartbeat may take as long as the session",
        "client/config.py",
        "        if self.heartbeat_interval_ms >= self.session_timeout_ms:",
        "        if self.heartbeat_interval_ms > self.session_timeout_ms:",
        _by("config", "wrong_consumer"),
    ),
    PlantedBug(
        "idempotence with more requests under way than a broker remembers",
        "client/config.py",
        "        if self.enable_idempotence and self.max_in_flight_requests_per_connection > 5:",
        "        if False:",
        _by("config", "wrong_producer"),
    ),
    PlantedBug(
        "a wakeup ends the commit of a close",
        "client/wakeup.py",
        "        if self._is_off:\n            return\n",
        "",
        _by("wakeup_nested", "while_closing"),
    ),
    PlantedBug(
        "a wakeup ends two calls",
        "client/wakeup.py",
        "        if self._is_pending:\n            self._is_pending = False\n",
        "        if self._is_pending:\n",
        _by("wakeup", "under_way_once"),
    ),
    PlantedBug(
        "what an awaiting caller left goes on",
        "client/engine.py",
        "            result: T = await caller.wait()\n"
        "        except BaseException:\n"
        "            self._cancel(task)\n",
        "            result: T = await caller.wait()\n        except BaseException:\n",
        _by("engine", "cancelling"),
    ),
    PlantedBug(
        "a forked child hands out what its parent has buffered",
        "client/engine.py",
        "        if os.getpid() != self._process_id:",
        "        if False:",
        _by("odd_calls", "after_a_fork"),
    ),
    PlantedBug(
        "a reset goes to an offset outside the log",
        "client/group_admin.py",
        "min(max(to, starts[tp]), ends[tp])",
        "to",
        _by("admin", "reset_and_forgotten"),
    ),
    PlantedBug(
        "a reset to a time behind the last record starts at the beginning",
        "client/group_admin.py",
        "ends[tp] if one is None else one.offset",
        "starts[tp] if one is None else one.offset",
        _by("admin", "reset_and_forgotten"),
    ),
    PlantedBug(
        "the lag of a group that never committed is the whole log",
        "client/group_admin.py",
        "lag = None if at is None else max(0, end - at.offset)",
        "lag = end if at is None else max(0, end - at.offset)",
        _by("admin", "nobody_knows"),
    ),
    PlantedBug(
        "a topic made anew at once counts as not deleted",
        "client/topic_admin.py",
        " and metadata.topics[name].topic_id == old.topic_id:",
        ":",
        _by("admin", "makes_anew"),
    ),
    PlantedBug(
        "a setting that is restored is set to nothing",
        "client/topic_admin.py",
        "config_operation=_DELETE if value is None else _SET",
        "config_operation=_SET",
        _by("admin", "one_by_one"),
    ),
    PlantedBug(
        "a range returns records behind its end",
        "client/ranges.py",
        "data, start, min(upto, end), aborted))",
        "data, start, upto, aborted))",
        _by("arrow", "range_is_read_exactly"),
    ),
    # Tokens, and proving it again
    PlantedBug(
        "a token is used until it has expired",
        "client/oauth.py",
        " and now < self._renew_s:",
        " and now < known.expires_s:",
        _by("oauth", "most_of_its_life"),
    ),
    PlantedBug(
        "a failed renewal throws a good token away",
        "client/oauth.py",
        "known is None or known.expires_s is None or known.expires_s <= now:",
        "True:",
        _by("oauth", "while_it_is_good"),
    ),
    PlantedBug(
        "a refused token is shown again",
        "client/connection.py",
        "                self._tokens.forget()",
        "                pass",
        _by("oauth", "next_login_brings_another"),
    ),
    PlantedBug(
        "the secret follows a redirect",
        "client/oauth.py",
        "[_StaysThere()]",
        "[]",
        _by("oauth", "redirect_is_not_followed"),
    ),
    PlantedBug(
        "the client's secret is part of a repr",
        "client/config.py",
        """'***' if is_secret(field.name) else""",
        """'***' if 'password' in field.name else""",
        _by("oauth", "secrets_are_in_no_text"),
    ),
    PlantedBug(
        "the password goes readably to whatever host a broker names",
        "client/connection.py",
        "                config.check_readable_secret(host)  # another broker may have named it\n",
        "",
        _by("readable_passwords", "that_a_broker_names"),
    ),
    PlantedBug(
        "the token goes to other machines readably",
        "client/config.py",
        '{"PLAIN": "password", "OAUTHBEARER": "token"}',
        '{"PLAIN": "password"}',
        _by("oauth", "do_not_go_together"),
    ),
    PlantedBug(
        "what is withheld during a renewal is lost",
        "client/connection.py",
        "        for pending, parts in withheld or ():\n            self._put(pending, parts)\n",
        "",
        _by("oauth", "lose_nothing and PLAIN"),
    ),
    PlantedBug(
        "requests go out in the middle of a renewal",
        "client/connection.py",
        "        self._withheld = []\n        try:\n",
        "        try:\n",
        _by("oauth", "lose_nothing and SCRAM"),
    ),
    PlantedBug(
        "nobody proves it again",
        "client/connection.py",
        "        if lifetime_ms > 0:\n",
        "        if lifetime_ms < 0:\n",
        _by("oauth", "only_waits_proves_it"),
    ),
    *planted_async.PLANTED,
    *planted_compiled.PLANTED,
    *planted_members.PLANTED,
    *planted_metrics.PLANTED,
    *planted_processing.PLANTED,
    *planted_settings.PLANTED,
    *planted_transactions.PLANTED,
)
