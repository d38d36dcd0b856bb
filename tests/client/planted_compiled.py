"""Bugs planted around the extension modules, see ``tests/planted``.

C is built once and cannot be planted in: these are where it is chosen, fed and left.
"""

from __future__ import annotations

from tests.planted.bugs import PlantedBug


def _by(which: str, file: str = "client/test_compiled_sending") -> str:
    return f"tests/{file}.py -k '{which}'"


PLANTED = (
    PlantedBug(
        "records join a batch that is on its way",
        "client/accumulator.py",
        "                        self._close(queue, tp)\n                        queue.left",
        "                        queue.open = None\n                        queue.left",
        _by("joins_a_batch_that_has_left and due"),
    ),
    PlantedBug(
        "records join, by the short way, a batch that was given up",
        "client/accumulator.py",
        "                        self._close(queue, tp)\n                    late",
        "                        queue.open = None\n                    late",
        _by("joins_a_batch_that_has_left and late"),
    ),
    PlantedBug(
        "single records overtake columns",
        "client/accumulator.py",
        "            self._close(queue, tp)\n            batch = ",
        "            queue.open = None\n            batch = ",
        _by("overtakes_a_batch_made_of_columns"),
    ),
    PlantedBug(
        "the short way stays open when records are refused",
        "client/accumulator.py",
        "            self.intake.is_refusing = True\n",
        "",
        _by("while_the_accumulator_refuses"),
    ),
    PlantedBug(
        "memory of settled batches stays counted",
        "client/accumulator.py",
        "            self.intake.change(-batch.size_bytes)\n",
        "",
        _by("makes_who_sends_wait"),
    ),
    PlantedBug(
        "the short way ignores serializers",
        "client/producer.py",
        "            and config.value_serializer is None\n",
        "",
        _by("of_others_are_asked"),
    ),
    PlantedBug(
        "a child of a fork writes into its parent's batches",
        "client/producer.py",
        "        self._serve()\n        self._callbacks, self._callbacks_lock",
        "        self._callbacks, self._callbacks_lock",
        _by("from_before_a_fork", "client/test_shared_producer"),
    ),
    PlantedBug(
        "headers reach a batch as they were given",
        "client/producer.py",
        "                headers.append((name, content))\n",
        "                headers.append(header)\n",
        _by("take_and_refuse_the_same"),
    ),
    PlantedBug(
        "a compressed batch names its first time as its last",
        "client/producer_batch.py",
        "times = self.base_timestamp_ms, self.max_timestamp_ms",
        "times = self.base_timestamp_ms, self.base_timestamp_ms",
        _by("take_the_short_way_and_give"),
    ),
    PlantedBug(
        "a compiled batch is never of a transaction",
        "client/producer_batch.py",
        "                stamp.base_sequence,\n                stamp.is_transactional,\n",
        "                stamp.base_sequence,\n                False,\n",
        _by("take_the_short_way_and_give"),
    ),
    PlantedBug(
        "the records of a batch that is split change their times",
        "client/producer_batch.py",
        "                base_timestamp_ms=self.base_timestamp_ms,\n",
        "                base_timestamp_ms=0,\n",
        _by("are_found_in_its_parts"),
    ),
    PlantedBug(
        "callbacks of a split batch are lost",
        "client/producer_batch.py",
        "            future._batch.add_callback(future, function)\n",
        "            continue\n",
        _by("are_found_in_its_parts"),
    ),
    PlantedBug(
        "every deserializer is taken for text",
        "client/fetch_buffer.py",
        "            each is None or each is deserialize_str for each",
        "            True for each",
        _by("only_some_have", "client/test_inside"),
    ),
    PlantedBug(
        "text is decoded where bytes are wanted",
        "client/fetch_buffer.py",
        "keys, values = self._key is not None, self._value is not None",
        "keys, values = True, True",
        _by("only_some_have", "client/test_inside"),
    ),
    PlantedBug(
        "a record that is no text is passed over",
        "client/fetch_buffer.py",
        "            first = texts_of(records, first, end, keys=keys, values=values)\n",
        "            texts_of(records, first, end, keys=keys, values=values)\n"
        "            first = end\n",
        _by("up_to_the_record_that_is_none", "client/test_inside"),
    ),
    PlantedBug(
        "a deserialized key takes the place of its value",
        "client/fetch_buffer.py",
        "            put(record, key, value)\n",
        "            put(record, key, key)\n",
        _by("only_some_have", "client/test_inside"),
    ),
    PlantedBug(
        "records are handed out of the list that their chunk goes on with",
        "client/fetch_buffer.py",
        "        hand = part[::-1]\n",
        "        hand = part\n        hand.reverse()\n",
        _by("left_in_a_hand", "client/test_inside"),
    ),
    PlantedBug(
        "a poll of a part of what was decoded returns all of it",
        "client/fetch_buffer.py",
        "records if is_all else records[start:end]",
        "records",
        _by("every_offset_comes_once", "client/test_inside"),
    ),
    PlantedBug(
        "a poll forgets its interceptors",
        "client/polling.py",
        "    if taken and not interceptors:\n",
        "    if taken:\n",
        _by("change_and_filter", "client/test_reading_topics"),
    ),
    PlantedBug(
        "extensions run without Python's lock",
        "records/extension.py",
        '        if not getattr(sys, "_is_gil_enabled", lambda: True)():\n',
        "        if False:\n",
        _by("without_its_lock", "records/test_extension"),
    ),
    PlantedBug(
        "who asks for Python gets C",
        "records/extension.py",
        '    if wish == "python":\n',
        "    if False:\n",
        _by("that_is_asked_for", "records/test_extension"),
    ),
    PlantedBug(
        "records of a group begin at its first batch's neighbour",
        "records/objects.py",
        "which = group.batches, group.first, group.batch_count",
        "which = group.batches, 0, group.batch_count",
        _by("come_in_parts_and_before", "records/test_objects"),
    ),
)
