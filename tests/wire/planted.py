"""Bugs planted in the bytes of messages, see ``tests/planted``."""

from __future__ import annotations

from tests.planted.bugs import PlantedBug

SCHEMA = "tests/wire/test_schema.py"
FRAMES = "tests/wire/test_frames.py"
VARINT = "tests/wire/test_varint.py"
PROTOCOL = "tests/wire/test_consumer_protocol.py"
OFFSETS = "tests/wire/test_offsets_topic.py"
LYING = "tests/broker/test_lying_lengths.py"

PLANTED = (
    # Reading
    PlantedBug(
        "a varint may have more than 32 bits",
        "wire/varint.py",
        "            if value >> 32:\n                break\n",
        "",
        f"{VARINT}::test_more_than_32_bits_are_refused",
    ),
    PlantedBug(
        "a tagged struct that is missing beside other tags is nothing at all",
        "wire/decoder.py",
        'with block.indented(f"if o.{field.name} is not_there:"):',
        'with block.indented("if False:"):',
        f"{OFFSETS} -k tag_is_missing",
    ),
    PlantedBug(
        "a tagged struct that is missing without other tags is null",
        "wire/decoder.py",
        'self.block.line(f"{name}.{field.name} = {self.default(field)}")',
        'self.block.line(f"{name}.{field.name} = None")',
        f"{OFFSETS} -k tag_is_missing",
    ),
    PlantedBug(
        "a message may end beyond its bytes",
        "wire/schema.py",
        "        if decoded[1] > len(source):\n",
        "        if False:\n",
        f"{SCHEMA}::test_a_prefix_cut_inside_its_last_text_is_refused",
    ),
    PlantedBug(
        "what is announced is not weighed against what is there",
        "wire/decoder.py",
        '        with self.block.indented(f"if {size} * {least} > end - p:"):\n'
        '            self.block.line("too_many()")\n',
        "",
        f"{SCHEMA}::test_nonsense_is_refused_by_name",
    ),
    PlantedBug(
        "tags are not counted against the budget",
        "wire/decoder.py",
        '        block.line("budget -= count")\n',
        "",
        f"{SCHEMA}::test_a_known_tagged_field_must_have_its_size",
    ),
    PlantedBug(
        "unknown tags are not counted against the budget",
        "wire/decoder.py",
        "    budget -= count\n",
        "",
        f"{SCHEMA}::test_broken_tag_sections_are_refused",
    ),
    PlantedBug(
        "the elements of inner arrays are not counted against the budget",
        "wire/decoder.py",
        '            self.block.line(f"budget -= {size}")\n',
        '            self.block.line(f"budget -= {size} if budget < {size} else 0")\n',
        f"{SCHEMA}::test_all_arrays_of_a_message_share_one_budget",
    ),
    PlantedBug(
        "a count of tags that lies is taken for as many as there are",
        "wire/decoder.py",
        "        tag, position, stop = _next_tag(data, position, len(data))\n",
        "        if position >= len(data):\n"
        "            break\n"
        "        tag, position, stop = _next_tag(data, position, len(data))\n",
        f"{LYING} -k counts_that_lie_are",
    ),
    PlantedBug(
        "an array is read as far as its bytes go",
        "wire/decoder.py",
        '            self.block.line("too_many()")\n        items, item',
        '            self.block.line(f"{size} = 0")\n        items, item',
        f"{LYING} -k array_lengths",
    ),
    PlantedBug(
        "a tagged field may leave bytes over",
        "wire/decoder.py",
        '                    with block.indented("if p != stop:"):\n',
        '                    with block.indented("if p > stop:"):\n',
        f"{SCHEMA}::test_a_known_tagged_field_must_have_its_size",
    ),
    PlantedBug(
        "unknown tags are forgotten",
        "wire/decoder.py",
        "    struct.unknown_tagged_fields[tag] = bytes(data)\n",
        "",
        f"{SCHEMA}::test_unknown_tagged_fields_are_kept_wherever_they_stand",
    ),
    PlantedBug(
        "every negative length is null",
        "wire/decoder.py",
        '{target} = None if {size} == -1 else bad_length({path!r}, {size})"',
        '{target} = None"',
        f"{SCHEMA}::test_of_negative_lengths_only_minus_one_is_null",
    ),
    PlantedBug(
        "batches are copied out of their frame",
        "wire/decoder.py",
        'copied = "bytes({})" if self.views and not zero_copy else "{}"',
        'copied = "bytes({})"',
        f"{SCHEMA}::test_decoded_record_batches_are_views_of_the_frame_and_the_rest_is_not",
    ),
    # Writing
    PlantedBug(
        "what a version cannot carry is dropped in silence",
        "wire/encoder.py",
        "if not field.exists_in(self.version) and not field.spec.ignorable\n",
        "if False\n",
        f"{SCHEMA}::test_a_value_the_version_cannot_carry_is_refused_unless_ignorable",
    ),
    PlantedBug(
        "a short uuid is padded",
        "wire/encoder.py",
        'return f"({name} if len({name} := {expression}) == 16 else bad_uuid())"',
        "return expression",
        f"{SCHEMA}::test_a_value_that_does_not_fit_is_named",
    ),
    PlantedBug(
        "tags are written as they come",
        "wire/encoder.py",
        "    for tag in sorted(fields):\n",
        "    for tag in fields:\n",
        f"{SCHEMA}::test_tagged_fields_may_come_in_any_order_and_the_last_of_two_counts",
    ),
    PlantedBug(
        "large batches are copied",
        "wire/encoder.py",
        "        self.cuts = True\n",
        "        self.block.line(f'add({data})')\n        return\n",
        f"{SCHEMA}::test_large_record_batches_are_passed_on_without_a_copy",
    ),
    PlantedBug(
        "a long string is written with a length nobody reads",
        "wire/encoder.py",
        "    if length > MAX_STRING_BYTES + 1:\n        refuse()\n",
        "",
        f"{SCHEMA}::test_a_value_that_does_not_fit_is_named",
    ),
    # Frames
    PlantedBug(
        "a response to ApiVersions has tags in its header",
        "wire/apis/registry.py",
        " and self.key is not ApiKey.API_VERSIONS)",
        ")",
        f"{FRAMES}::test_an_api_versions_response_never_has_a_tagged_header",
    ),
    PlantedBug(
        "a refused version of ApiVersions is read in our own",
        "wire/frames.py",
        "            version = 0\n",
        "            pass\n",
        f"{FRAMES}::test_a_refused_version_of_api_versions_is_answered_in_version_0",
    ),
    PlantedBug(
        "the size of a frame leaves the tags out",
        "wire/frames.py",
        "size = 4 + len(tags) + sum(map(len, parts))",
        "size = 4 + sum(map(len, parts))",
        f"{FRAMES}::test_a_response_survives_the_trip",
    ),
    PlantedBug(
        "a client id may reach beyond its frame",
        "wire/frames.py",
        "    if end > len(frame):\n",
        "    if False:\n",
        f"{FRAMES}::test_a_broken_request_header_is_refused",
    ),
    PlantedBug(
        "unknown tags of a header are part of the message",
        "wire/frames.py",
        "            position += size\n",
        "            pass\n",
        f"{FRAMES}::test_unknown_tags_of_a_header_are_skipped",
    ),
    # What consumers and coordinators store
    PlantedBug(
        "a newer subscription is refused",
        "wire/consumer_protocol.py",
        "return min(version, MAX_VERSION), _VERSION.size",
        "return version, _VERSION.size",
        f"{PROTOCOL}::test_a_newer_version_is_read_as_the_highest_known_one",
    ),
    PlantedBug(
        "generation 0 is none",
        "wire/consumer_protocol.py",
        "generation_id=None if message.generation_id < 0 else message.generation_id",
        "generation_id=message.generation_id if message.generation_id > 0 else None",
        f"{PROTOCOL}::test_generation_0_is_one_and_minus_one_is_none",
    ),
    PlantedBug(
        "the partitions of an assignment are sorted",
        "wire/consumer_protocol.py",
        "_by_topic(self.partitions), user_data",
        "_by_topic(sorted(self.partitions)), user_data",
        f"{PROTOCOL}::test_an_assignment_keeps_the_order_of_the_assignor",
    ),
    PlantedBug(
        "the time to expire of an offset is dropped",
        "wire/offsets_topic.py",
        "if value.expire_timestamp != _NEVER:",
        "if False:",
        f"{OFFSETS}::test_values_are_written_in_the_versions_kafka_writes",
    ),
    PlantedBug(
        "a group is written in a version old brokers cannot read",
        "wire/offsets_topic.py",
        "    if isinstance(value, GroupMetadataValue):\n        return 3\n",
        "",
        f"{OFFSETS}::test_values_are_written_in_the_versions_kafka_writes",
    ),
    PlantedBug(
        "a record from a newer broker is an error",
        "wire/offsets_topic.py",
        "        return UnknownKey(record_type, bytes(data))\n",
        '        raise InvalidMessageError(f"type {record_type}")\n',
        f"{OFFSETS}::test_a_key_of_an_unknown_type_is_reported_and_not_an_error",
    ),
    # What clients push
    PlantedBug(
        "a push that is cut off is read beyond its end",
        "wire/otlp.py",
        "            if size > end - position:",
        "            if False:",
        "tests/wire/test_otlp.py -k no_push",
    ),
    PlantedBug(
        "there is no end to the numbers of a push",
        "wire/otlp.py",
        "        if self._points > POINTS_MAX:",
        "        if False:",
        "tests/wire/test_otlp.py -k an_end_to_numbers",
    ),
    PlantedBug(
        "there is no end to the fields of a push",
        "wire/otlp.py",
        "            if self._fields > _FIELDS_MAX:",
        "            if False:",
        "tests/wire/test_otlp.py -k an_end_to_numbers",
    ),
    PlantedBug(
        "every sum is a counter",
        "wire/otlp.py",
        "                    is_monotonic = value == 1",
        "                    is_monotonic = True",
        "tests/wire/test_otlp.py -k gauges_and_counters",
    ),
    PlantedBug(
        "numbers of a push have no sign",
        "wire/otlp.py",
        '_SFIXED64: Final = Struct("<q")',
        '_SFIXED64: Final = Struct("<Q")',
        "tests/wire/test_otlp.py -k gauges_and_counters",
    ),
    PlantedBug(
        "a field is gone a version early",
        "wire/fields.py",
        "version <= last)",
        "version < last)",
        f"{SCHEMA} -k in_its_last_version",
    ),
)
