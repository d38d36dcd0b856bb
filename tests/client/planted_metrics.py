"""Bugs planted in what clients count and tell, see ``tests/planted``."""

from __future__ import annotations

from tests.planted.bugs import PlantedBug

SENSORS = "client/sensors.py"
TALLIES = "client/tallies.py"
PROMETHEUS = "client/prometheus.py"
TELEMETRY = "client/opentelemetry.py"
RULE = "tests/client/test_sensors.py -k 'rule_says'"


def _by(which: str, module: str = "metrics") -> str:
    """The tests whose names contain ``which``, against our broker alone."""
    return f"tests/client/test_{module}.py -m 'not kafka' -k '{which}'"


PLANTED = (
    PlantedBug(
        "what happened long ago is of now for ever",
        SENSORS,
        "if now - one.last < SAMPLES * self._window_s]",
        "]",
        RULE,
    ),
    PlantedBug(
        "what happened once just now is a high rate",
        SENSORS,
        "    missing = max(0, SAMPLES - 1 - whole)\n",
        "    missing = 0\n",
        "tests/client/test_sensors.py -k 'just_now'",
    ),
    PlantedBug(
        "the largest value is the last one",
        SENSORS,
        "        if value > sample.largest:\n",
        "        if value:\n",
        RULE,
    ),
    PlantedBug(
        "a sample of a sensor never ends",
        SENSORS,
        "        self._ends = now + self._window_s\n",
        "        self._ends = math.inf\n",
        RULE,
    ),
    PlantedBug(
        "what never happened was just now",
        "client/metrics.py",
        "_UNKNOWN: Final = -1.0\n",
        "_UNKNOWN: Final = 0.0\n",
        _by("beginning_to_beginning"),
    ),
    PlantedBug(
        "a value of another topic is taken for the one that was asked for",
        "client/metrics.py",
        'if tag != "client-id"} == wanted:',
        'if tag != "client-id"}.keys() == wanted.keys():',
        _by("found_by_its_name"),
    ),
    PlantedBug(
        "lag is that of before the records were read",
        TALLIES,
        "            lag = end - position if end > position else 0\n",
        "            lag = end - position + records\n",
        _by("follow_what_was_read and shoal"),
    ),
    PlantedBug(
        "the least lead is the largest",
        TALLIES,
        "            if lead < sample.lead_min:\n",
        "            if lead:\n",
        _by("follow_what_was_read and shoal"),
    ),
    PlantedBug(
        "of a partition that was given up records are forgotten",
        TALLIES,
        "        tallies = dict(self._partitions.items())\n",
        "        tallies = {s.tp: s.tally for s in positions if s.tally is not None}\n",
        _by("follow_what_was_read and shoal"),
    ),
    PlantedBug(
        "rows that compaction took count as read",
        "client/fetch_buffer.py",
        "        if sum(rows.values()) != arrow_batch.num_rows:\n",
        "        if not arrow_batch.num_rows:\n",
        _by("compacted"),
    ),
    PlantedBug(
        "records of a loop over a consumer are not counted",
        "client/fetch_buffer.py",
        "                chunk.taken(count)\n"
        "                self._tally.took(chunk.state, count)\n",
        "                chunk.taken(count)\n",
        _by("however_they_are_read and iterate"),
    ),
    PlantedBug(
        "bytes of columns are not counted",
        "client/fetch_buffer.py",
        "                self._tally.finished(chunk.state, len(chunk.data))\n",
        "",
        _by("however_they_are_read and columns"),
    ),
    PlantedBug(
        "a fetch takes as many milliseconds as seconds",
        "client/fetcher.py",
        "        self._tally.answered(1000 * (now - began), answer.throttle_time_ms, now)\n",
        "        self._tally.answered(now - began, answer.throttle_time_ms, now)\n",
        _by("those_of_the_requests"),
    ),
    PlantedBug(
        "a commit is timed from before its turn came",
        "client/commits.py",
        "            began = loop.time()\n            answer = await",
        "            began = 0.0\n            answer = await",
        _by("those_of_the_requests"),
    ),
    PlantedBug(
        "a consumer is idle while it works",
        TALLIES,
        "            sample.idle_sum += (ended - began) / whole\n",
        "            sample.idle_sum += gap / whole\n",
        _by("beginning_to_beginning"),
    ),
    PlantedBug(
        "a rebalance begins anew with every join",
        TALLIES,
        "        if self._rebalance_began is None:\n            self._rebalance_began = now\n",
        "        self._rebalance_began = now\n",
        _by("first_join"),
    ),
    PlantedBug(
        "a rebalance that came to nothing goes on until the next",
        TALLIES,
        'any more."""\n        self._rebalance_began = None\n',
        'any more."""\n',
        _by("first_join"),
    ),
    PlantedBug(
        "answers come without their bytes",
        "client/connection.py",
        "        self._traffic.answers.record(len(frame) + 4, self._loop.time())\n",
        "        self._traffic.answers.record(4, self._loop.time())\n",
        _by("comes_back"),
    ),
    PlantedBug(
        "a connection that was closed is not counted",
        "client/connection.py",
        "            self._traffic.closed.record(1, self._loop.time())\n",
        "",
        _by("comes_back"),
    ),
    PlantedBug(
        "a login that is refused is not counted",
        "client/connection.py",
        "            refused.record(1, self._loop.time())\n",
        "",
        _by("login_that_is_refused"),
    ),
    PlantedBug(
        "retries are not counted",
        "client/sender.py",
        "        self._tally.retried(batch.tp.topic, batch.record_count, now)\n",
        "",
        _by("count_records"),
    ),
    PlantedBug(
        "a record that was never sent is an error of sending",
        "client/sender.py",
        "        if error is not None and was_sent:\n",
        "        if error is not None:\n",
        _by("waits_for_room_is_seen"),
    ),
    PlantedBug(
        "what is saved by compressing is told too small",
        "client/sender.py",
        "            slack = _SLACK_BYTES * batch.record_count\n",
        "            slack = 0\n",
        _by("left_of_the_bytes and lz4"),
    ),
    PlantedBug(
        "nobody is seen waiting for room",
        "client/accumulator.py",
        "            self._tally.waits.record(1e9 * (now - began), now)\n",
        "",
        _by("waits_for_room_is_seen"),
    ),
    PlantedBug(
        "a commit of a transaction takes no time",
        "client/transactions.py",
        '        with self._tally.timing("txn-commit"):\n',
        '        with self._tally.timing("txn-abort"):\n',
        _by("transactions_are_timed and shoal"),
    ),
    # Prometheus
    PlantedBug(
        "a client that was closed is told of",
        PROMETHEUS,
        "else bool(engine.is_running)\n",
        "else True\n",
        _by("closed_or_removed", "prometheus"),
    ),
    PlantedBug(
        "a collector keeps clients alive",
        PROMETHEUS,
        "            self._clients[name] = weakref.ref(client)\n",
        "            self._clients[name] = lambda: client\n",
        _by("kept_alive or closed_or_removed", "prometheus"),
    ),
    PlantedBug(
        "what is told of partitions adds to what is told of all",
        PROMETHEUS,
        '    level = "partition" if metric.tag("partition") is not None else None\n',
        "    level = None\n",
        _by("names_do_not_meet", "prometheus"),
    ),
    PlantedBug(
        "one client that fails hides the others",
        PROMETHEUS,
        "                continue\n",
        "                return\n",
        _by("hide_the_others", "prometheus"),
    ),
    # OpenTelemetry
    PlantedBug(
        "the context of a send stays at home",
        TELEMETRY,
        "not _is_named(one, names)), *ours]\n",
        "not _is_named(one, names))]\n",
        _by("one_trace", "opentelemetry"),
    ),
    PlantedBug(
        "a context that is passed on stays beside the new one",
        TELEMETRY,
        "    return is_pair and isinstance(header[0], str) and header[0] in names\n",
        "    return False\n",
        _by("gives_way", "opentelemetry"),
    ),
    PlantedBug(
        "of two contexts the first counts",
        TELEMETRY,
        "in reversed(carrier):",
        "in carrier:",
        _by("whatever_stands_in_headers", "opentelemetry"),
    ),
    PlantedBug(
        "the work on a record has no parent",
        TELEMETRY,
        "    if not context:\n        yield\n",
        "    if context is not None:\n        yield\n",
        _by("one_trace", "opentelemetry"),
    ),
    PlantedBug(
        "the context of a record is left behind",
        TELEMETRY,
        "    finally:\n        detach(token)\n",
        "    finally:\n        pass\n",
        _by("comes_back", "opentelemetry"),
    ),
    PlantedBug(
        "a failure is no status",
        TELEMETRY,
        '    span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))\n',
        "",
        _by("kafkas_error", "opentelemetry"),
    ),
    PlantedBug(
        "handlers that are awaited run after their span",
        TELEMETRY,
        "                return await result if inspect.isawaitable(result) else result\n",
        "            return await result if inspect.isawaitable(result) else result\n",
        _by("awaitable_clients", "opentelemetry"),
    ),
    PlantedBug(
        "a poll keeps a link for every record it brings",
        TELEMETRY,
        "            if len(links) < _LINKS_MAX and record.headers:\n",
        "            if record.headers:\n",
        _by("as_many_links", "opentelemetry"),
    ),
    PlantedBug(
        "who wakes a consumer makes an error",
        TELEMETRY,
        "        if isinstance(error, WakeupError):\n            return  # asked for\n",
        "",
        _by("bring_nothing", "opentelemetry"),
    ),
)
