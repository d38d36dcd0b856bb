"""Bugs planted in the format of record batches, see ``tests/planted``."""

from __future__ import annotations

from tests.planted.bugs import PlantedBug

BATCH = "tests/records/test_batch.py"
CHUNKS = "tests/records/test_chunks.py"
COLUMNS = "tests/records/test_columns.py"
COMPRESSION = "tests/records/test_compression.py"
ENCODING = "tests/records/test_encoding.py"
MARKERS = "tests/records/test_markers.py"
OBJECTS = "tests/records/test_objects.py"
RECORD = "tests/records/test_record.py"
VETTING = "tests/records/test_vetting.py"

PLANTED = (
    # The header
    PlantedBug(
        "the checksum begins four bytes early",
        "records/batch.py",
        "_CRC_FROM: Final = 21",
        "_CRC_FROM: Final = 17",
        f"{BATCH}::test_a_batch_is_laid_out_as_kafka_lays_it_out",
    ),
    PlantedBug(
        "sequence numbers grow beyond 31 bits",
        "records/batch.py",
        "(self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF",
        "(self.base_sequence + self.last_offset_delta)",
        f"{BATCH}::test_sequence_numbers_wrap_to_zero",
    ),
    PlantedBug(
        "a batch ends with its last record",
        "records/batch.py",
        "    if last_offset is not None:\n",
        "    if False:\n",
        f"{BATCH}::test_compaction_may_leave_a_batch_without_records",
    ),
    PlantedBug(
        "a cut batch is read",
        "records/batch.py",
        " and batch_size(data, position) <= end - position:\n",
        ":\n",
        f"{BATCH}::test_a_cut_anywhere_leaves_the_whole_batches_before_it",
    ),
    PlantedBug(
        "more records than offsets are believed",
        "records/batch.py",
        "0 <= header.record_count <= header.last_offset_delta + 1",
        "0 <= header.record_count",
        f"{BATCH} -k contradict_themselves",
    ),
    PlantedBug(
        "the log's time is not signed",
        "records/batch.py",
        "        _write_checksum(buffer, position, batch_size(buffer, position))\n",
        "",
        f"{BATCH}::test_log_append_time_is_set_with_a_new_checksum",
    ),
    PlantedBug(
        "a new largest timestamp is not signed",
        "records/batch.py",
        "    _write_checksum(buffer, 0, batch_size(buffer))\n",
        "",
        f"{BATCH}::test_a_new_max_timestamp_has_a_new_checksum",
    ),
    PlantedBug(
        "the log's time is told and the producer's is returned",
        "records/batch.py",
        "append_time_ms=header.max_timestamp_ms if by_broker else None",
        "append_time_ms=None",
        f"{BATCH}::test_log_append_time_is_every_record_s_time",
    ),
    PlantedBug(
        "a fetch goes on behind the last record and not behind the batch",
        "records/batch.py",
        "        offset = max(offset, header.next_offset)\n",
        "        offset = max(offset, header.base_offset + header.record_count)\n",
        f"{BATCH}::test_a_fetch_goes_on_behind_the_batch_and_not_behind_its_last_record",
    ),
    # Records
    PlantedBug(
        "bytes behind the last record are left over in silence",
        "records/record.py",
        "    if end != len(body):\n",
        "    if False:\n",
        f"{VETTING} -k wrong_inside",
    ),
    PlantedBug(
        "an offset may come twice",
        "records/record.py",
        "if not previous < delta <= last_offset_delta:",
        "if not previous <= delta <= last_offset_delta:",
        f"{RECORD}::test_offsets_must_rise_and_stay_below_the_last_one",
    ),
    PlantedBug(
        "an empty value is null",
        "records/record.py",
        "    value_parts = _NULL if value is None else",
        "    value_parts = _NULL if not value else",
        f"{RECORD}::test_an_empty_key_or_value_is_not_null",
    ),
    PlantedBug(
        "the length of a name is counted in characters",
        "records/record.py",
        "length = len(name) if name.isascii() else len(name.encode())",
        "length = len(name)",
        f"{RECORD}::test_the_size_of_a_record_counts_the_bytes_of_a_header_s_name",
    ),
    # Compression
    PlantedBug(
        "gzip inflates without a limit",
        "records/compression.py",
        "                part = member.decompress(piece, room + 1)\n",
        "                part = member.decompress(piece)[: room + 1]\n",
        f"{COMPRESSION}::test_a_bomb_costs_no_more_memory_than_the_limit",
    ),
    PlantedBug(
        "only the first gzip member is read",
        "records/compression.py",
        "        feed.give_back(len(member.unused_data))\n",
        "        break\n",
        f"{COMPRESSION}::test_gzip_may_have_several_members",
    ),
    PlantedBug(
        "lz4 blocks are linked, which Java refuses",
        "records/compression.py",
        "block_linked=False",
        "block_linked=True",
        f"{COMPRESSION}::test_lz4_frames_have_independent_blocks_and_nothing_java_has_to_skip",
    ),
    PlantedBug(
        "a snappy block is inflated before it is weighed",
        "records/compression.py",
        "    if sum(sizes) > limit_bytes:\n        raise BatchTooLargeError(limit_bytes)\n",
        "",
        f"{COMPRESSION}::test_one_byte_above_the_limit_is_too_large",
    ),
    # What a fetch shows
    PlantedBug(
        "aborted records are shown after a gap in the offsets",
        "records/chunks.py",
        "self._waiting[-1][1] <= header.last_offset:",
        "self._waiting[-1][1] == header.base_offset:",
        f"{CHUNKS}::test_an_aborted_transaction_may_begin_before_the_first_batch_that_is_left",
    ),
    PlantedBug(
        "a producer that aborted once is hidden for ever",
        "records/chunks.py",
        "            self._producers.discard(header.producer_id)\n",
        "            pass\n",
        f"{CHUNKS}::test_records_of_aborted_transactions_are_hidden",
    ),
    PlantedBug(
        "records outside of transactions are hidden with the aborted ones",
        "records/chunks.py",
        "        if header.producer_id not in self._producers or not header.is_transactional:\n",
        "        if header.producer_id not in self._producers:\n",
        f"{CHUNKS}::test_what_a_producer_sent_outside_of_a_transaction_is_shown",
    ),
    PlantedBug(
        "the record before the wanted one is returned",
        "records/chunks.py",
        "if record[0] >= start]",
        "if record[0] >= start - 1]",
        f"{CHUNKS}::test_only_the_wanted_offsets_are_returned",
    ),
    PlantedBug(
        "checksums are not looked at",
        "records/chunks.py",
        "if limits.check_crc and not checksum_holds(data, position, header.size_bytes):",
        "if False:",
        f"{CHUNKS} -k good_comes_before",
    ),
    PlantedBug(
        "a commit marker is an abort",
        "records/markers.py",
        "kind = _CONTROL_KEY.unpack_from(key)[1]",
        "kind = _CONTROL_KEY.unpack_from(key)[0]",
        f"{MARKERS}::test_a_marker_says_how_a_transaction_ended",
    ),
    PlantedBug(
        "all batches have the first one's kind of time",
        "records/objects.py",
        "    if len({batch[1:] for batch in batches}) == 1:\n",
        "    if True:\n",
        "tests/records/test_compiled_objects.py -k same_records",
    ),
    # Columns
    PlantedBug(
        "no headers are an empty list",
        "records/columns.py",
        "for key, value in record[4]] if record[4] else None\n",
        "for key, value in record[4]]\n",
        f"{COLUMNS}::test_a_record_without_headers_has_null_and_not_an_empty_list",
    ),
    PlantedBug(
        "rows of two topics are counted together",
        "records/columns.py",
        "    pairs = topics.indices.to_numpy().astype(np.int64) << 32 | partitions\n",
        "    pairs = partitions.astype(np.int64)\n",
        f"{COLUMNS}::test_rows_are_counted_by_topic_and_partition",
    ),
    PlantedBug(
        "milliseconds are taken for microseconds",
        "records/columns.py",
        "    return [timestamp_ms * _MICROS_PER_MS for timestamp_ms in timestamps_ms]\n",
        "    return timestamps_ms\n",
        f"{COLUMNS}::test_rows_say_where_they_come_from",
    ),
    PlantedBug(
        "a batch of a partition is told to be of the one before it",
        "records/encoding.py",
        "        while ends[group] <= rows.start:",
        "        while ends[group] < rows.start:",
        f"{ENCODING}::test_groups_are_encoded_like_each_of_them_alone",
    ),
    PlantedBug(
        "the room for rows is counted on all the memory that they are a slice of",
        "records/encoding.py",
        "    return int(last - first)",
        "    return int(data.size if data else last - first)",
        f"{ENCODING}::test_all_groups_lie_in_one_piece_of_memory",
    ),
    PlantedBug(
        "the nulls of a slice are those of its array",
        "records/encoding.py",
        "place.validity, place.first_bit = validity.address, column.offset",
        "place.validity, place.first_bit = validity.address, 0",
        f"{ENCODING}::test_arrow_columns_of_bytes_or_text_are_taken_as_they_are",
    ),
    PlantedBug(
        "sequence numbers of later batches do not wrap",
        "records/encoding.py",
        "(stamp.base_sequence + row) & 0x7FFFFFFF",
        "(stamp.base_sequence + row)",
        f"{ENCODING}::test_sequence_numbers_wrap_between_batches",
    ),
    PlantedBug(
        "every batch begins at the first one's sequence number",
        "records/encoding.py",
        "        base_sequence=_sequence(stamp, row),\n",
        "        base_sequence=stamp.base_sequence,\n",
        f"{ENCODING}::test_sequence_numbers_wrap_between_batches",
    ),
    PlantedBug(
        "a time before 1970 is rounded up",
        "records/encoding.py",
        "        millis = millis * times // per\n",
        "        millis = (millis * times / per).astype('int64')\n",
        f"{ENCODING}::test_timestamps_of_any_unit_are_rounded_down_to_milliseconds",
    ),
    # What a broker takes
    PlantedBug(
        "a codec that lies is taken",
        "records/vetting.py",
        "    except CorruptDataError:\n        return None\n    facts = kernel",
        "    except CorruptDataError:\n        return Facts(0, 0, 0)\n    facts = kernel",
        f"{VETTING} -k codec_that_lies",
    ),
    PlantedBug(
        "a compressed batch may inflate to anything",
        "records/vetting.py",
        "header, limit_bytes)\n",
        "header, 2**40)\n",
        f"{VETTING} -k beyond_the_limit",
    ),
    # What C is told
    PlantedBug(
        "timestamps are believed to be as many as they say",
        "records/encoding.py",
        "    if len(millis) != rows:\n",
        "    if False:\n",
        f"{ENCODING} -k 'shorter_than_it_says and columns2'",
    ),
    PlantedBug(
        "bytes are believed to be as many as they say",
        "records/encoding.py",
        "    if size != len(data):\n",
        "    if False:\n",
        f"{ENCODING}::test_bytes_that_are_fewer_than_they_say_are_refused",
    ),
    PlantedBug(
        "headers are believed to be as many as they say",
        "records/encoding.py",
        "        if len(ends) != columns.rows + 1 or ends[-1] != len(flat):\n",
        "        if False:\n",
        f"{ENCODING} -k 'shorter_than_it_says and columns4'",
    ),
    PlantedBug(
        "the kernel may list more batches than there is room for",
        "records/chunks.py",
        "batches, batch_bound, limits.check_crc",
        "batches, 2 * batch_bound, limits.check_crc",
        f"{CHUNKS}::test_bytes_that_change_to_more_batches_overrun_nothing",
    ),
)
