"""Bugs planted in the command line, see ``tests/planted``."""

from __future__ import annotations

from tests.planted.bugs import PlantedBug

COMMANDS = "tests/cli/test_commands.py"
LOG = "tests/cli/test_log.py"
OUTPUT = "tests/cli/test_output.py"
TRANSACTION = "tests/cli/test_transaction_commands.py"
GROUPS = "tests/cli/test_group_offsets.py"
EXACT = "tests/cli/test_exact_records.py"
TABLES = "tests/cli/test_tables.py"
HELP = "tests/cli/test_help.py::test_help_fits_every_width_and_breaks_no_word"
PLAN = "tests/assign/test_plan_command.py"
ASKS = f"{COMMANDS}::test_what_destroys_asks_first_and_a_pipe_is_no_answer[ours]"
LOOKS = f"{COMMANDS}::test_looking_without_committing_leaves_a_group_where_it_is[ours]"
FLAGS = f"{COMMANDS}::test_flags_of_topics_and_groups_do_what_they_say[ours]"
LINES = f"{COMMANDS}::test_lines_go_in_and_come_out[ours]"
NAMES = f"{OUTPUT}::test_a_name_is_shown_as_it_is_in_every_part_of_a_table"

PLANTED = (
    # One line that says what to do.
    PlantedBug(
        "a hint does not name the topic or group",
        "cli/hints.py",
        "name=_name_in(error.detail)",
        "name=error.code.name",
        "tests/cli/test_hints.py",
    ),
    PlantedBug(
        "a topic that exists is said twice, without a command",
        "cli/topic.py",
        "if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:",
        "if error.code is not ErrorCode.NONE:",
        "tests/cli/test_hints.py",
    ),
    PlantedBug(
        "a host without an address is left to the client's log",
        "cli/connecting.py",
        "                unknown.append(host)\n                continue\n",
        "                return\n",
        f"{COMMANDS}::test_a_host_without_an_address_is_named_in_words_of_the_command",
    ),
    PlantedBug(
        "a mistake in YAML is told without its line",
        "cli/connecting.py",
        'line = f", line {mark.line + 1}" if mark else ""',
        'line = ""',
        f"{PLAN}::test_a_bad_file_is_one_line_naming_the_field",
    ),
    PlantedBug(
        "any file that ends in .log is dumped",
        "cli/log.py",
        "and not target.file[:-4].isdecimal()",
        "and not target.file",
        f"{LOG}::test_a_file_that_belongs_to_no_partition_is_not_called_ok",
    ),
    PlantedBug(
        "a pipe begins with a sentence",
        "cli/what_if.py",
        "(tell if sys.stdout.isatty() else warn)(headline_text(found))",
        "tell(headline_text(found))",
        "tests/cli/test_what_if.py -k told_what_saves",
    ),
    PlantedBug(
        "one entry of an index is called entries",
        "log/inspection.py",
        'return "1 entry" if count == 1 else',
        "return",
        f"{LOG}::test_what_is_counted_has_the_right_plural",
    ),
    PlantedBug(
        "a group that is not there is planned as one without members",
        "fleet/live_group.py",
        'if found.state == "Dead":',
        'if found.state == "dead":',
        "tests/cli/test_hints.py",
    ),
    PlantedBug(
        "Ctrl-C is heard while a process has no owner",
        "cli/interrupts.py",
        "    signal.signal(signal.SIGINT, hear)\n    try:\n        yield\n    finally",
        "    try:\n        yield\n    finally",
        "tests/cli/test_interrupts.py -k is_owned",
    ),
    PlantedBug(
        "a second Ctrl-C waits for the first",
        "cli/interrupts.py",
        "        signal.signal(signal.SIGINT, before)\n        consumer",
        "        consumer",
        "tests/cli/test_interrupts.py -k second",
    ),
    PlantedBug(
        "a consumer woken by Ctrl-C tells of a wakeup",
        "cli/interrupts.py",
        "        raise KeyboardInterrupt from None",
        "        raise",
        "tests/cli/test_interrupts.py -k woken",
    ),
    # Nothing is destroyed without a yes.
    PlantedBug(
        "groups are deleted without asking",
        "cli/group.py",
        "    confirm_or_stop(f\"This deletes the offsets of: {', '.join(groups)}\", yes=yes)\n",
        "",
        ASKS,
    ),
    PlantedBug(
        "a group is reset without asking",
        "cli/group.py",
        'confirm_or_stop(f"This moves group {group} in {moved}.", yes=yes)',
        "pass",
        ASKS,
    ),
    PlantedBug(
        "topics are deleted without asking",
        "cli/topic.py",
        'confirm_or_stop(f"This permanently deletes: {counts}", yes=yes)',
        "pass",
        ASKS,
    ),
    PlantedBug(
        "a log is mended without asking",
        "cli/log.py",
        '        confirm_or_stop(f"In {target.disk.root}:", *lines, yes=yes)\n',
        "",
        f"{LOG}::test_repair_prints_its_plan_and_waits_for_a_yes",
    ),
    PlantedBug(
        "a pipe is a yes",
        "cli/output.py",
        "    if yes:\n        return\n",
        "    if yes or not sys.stdin.isatty():\n        return\n",
        ASKS,
    ),
    # What is printed is text.
    PlantedBug(
        "what is on standard error may move the cursor",
        "cli/output.py",
        "_fitting(printable(text), sys.stderr)",
        "_fitting(text, sys.stderr)",
        NAMES,
    ),
    PlantedBug(
        "cells may move the cursor",
        "cli/output.py",
        "    return printable(str(value))\n",
        "    return str(value)\n",
        NAMES,
    ),
    PlantedBug(
        "names of columns may move the cursor",
        "cli/output.py",
        "lines = [list(map(printable, columns)), *rows]",
        "lines = [list(columns), *rows]",
        NAMES,
    ),
    PlantedBug(
        "control characters reach the terminal",
        "cli/output.py",
        'character if character.isprintable() else character.encode("unicode_escape").decode()',
        "character",
        NAMES,
    ),
    PlantedBug(
        "control characters in JSON reach the terminal",
        "cli/output.py",
        "character if character.isprintable() else json.dumps(character)[1:-1] for",
        "character for",
        f"{OUTPUT}::test_json_is_readable_and_means_what_was_said",
    ),
    PlantedBug(
        "header names reach the terminal as they are",
        "cli/consume.py",
        "{printable(name)}=",
        "{name}=",
        f"{OUTPUT}::test_a_header_cannot_move_the_cursor[ours]",
    ),
    # Reading and writing.
    PlantedBug(
        "what is looked at is committed",
        "cli/consume.py",
        "            if commit and len(records):\n",
        "            if len(records):\n",
        LOOKS,
    ),
    PlantedBug(
        "what is printed is not committed",
        "cli/consume.py",
        "                _commit(consumer, None if ends is None else ends.done(consumer))\n",
        "                pass\n",
        LOOKS,
    ),
    PlantedBug(
        "a member prints more than was asked for",
        "cli/consume.py",
        "poll(POLL_S, max_records=None if count is None else count - printed)",
        "poll(POLL_S)",
        LOOKS,
    ),
    PlantedBug(
        "the last records are the first",
        "cli/consume.py",
        'end[tp] + number if start.startswith("-") else number',
        "number",
        LINES,
    ),
    PlantedBug(
        "headers are left out",
        "cli/produce.py",
        "headers=[*headers, *one.headers],",
        "headers=[],",
        LINES,
    ),
    # Flags.
    PlantedBug(
        "groups of every state are listed",
        "cli/group.py",
        '(not wanted or row["state"] in wanted)',
        "True",
        FLAGS,
    ),
    PlantedBug(
        "internal topics are always listed",
        "cli/topic.py",
        "        if internal or not one.is_internal\n",
        "",
        FLAGS,
    ),
    PlantedBug(
        "default settings are always shown",
        "cli/topic.py",
        "        if all_settings or not entry.is_default\n",
        "",
        FLAGS,
    ),
    PlantedBug(
        "a setting is not taken back",
        "cli/topic.py",
        "{**_pairs(config), **dict.fromkeys(unset or ())}",
        "{**_pairs(config)}",
        FLAGS,
    ),
    PlantedBug(
        "only one topic is reset",
        "fleet/offset_reset.py",
        "and (not partitions or tp.partition in partitions)",
        "",
        FLAGS,
    ),
    PlantedBug(
        "others may read the password of a profile",
        "cli/connecting.py",
        "path.stat().st_mode & 0o077",
        "path.stat().st_mode & 0o022",
        f"{COMMANDS}::test_a_profile_names_the_cluster[ours]",
    ),
    # What programs rely on.
    PlantedBug(
        "a problem is no exit code",
        "cli/why.py",
        "EXIT_PROBLEM = 3",
        "EXIT_PROBLEM = 0",
        f"{COMMANDS}::test_why_may_look_back_for_ever[ours]",
    ),
    PlantedBug(
        "corruption is ok",
        "cli/log.py",
        "    Status.CORRUPT: 4,\n",
        "    Status.CORRUPT: 0,\n",
        f"{LOG}::test_a_torn_tail_is_told_from_corruption",
    ),
    PlantedBug(
        "transactions are aborted without asking",
        "cli/transaction.py",
        'confirm_or_stop(f"This aborts transactions and fences producers of: {states}", yes=yes)',
        "pass",
        f"{TRANSACTION}::test_nothing_is_aborted_without_a_yes",
    ),
    PlantedBug(
        "aborting an id that is not there makes it",
        "cli/transaction.py",
        "            found = admin.describe_transactions(*ids)",
        "            found = {}",
        f"{TRANSACTION}::test_an_id_that_is_not_there_is_not_made_by_aborting_it",
    ),
    PlantedBug(
        "a transaction that hangs is no failure",
        "cli/transaction.py",
        "EXIT_HANGING = 3",
        "EXIT_HANGING = 0",
        f"{TRANSACTION}::test_a_hanging_transaction_is_told_with_a_code_of_its_own",
    ),
    # What goes in, what comes out, where it ends.
    PlantedBug(
        "a null key is the marker's text",
        "cli/produce.py",
        "                    None if key == marker else key,",
        "                    key,",
        f"{COMMANDS} -m 'not kafka' -k null_marker",
    ),
    PlantedBug(
        "a record that is refused is no failure",
        "cli/produce.py",
        "        future.result()\n",
        "        future.exception()\n",
        f"{COMMANDS} -m 'not kafka' -k broker_refuses",
    ),
    PlantedBug(
        "the ends of lines are written to topics",
        "cli/produce.py",
        '.removesuffix(b"\\r")',
        "",
        LINES,
    ),
    PlantedBug(
        "a group is reset to where no record is",
        "fleet/offset_reset.py",
        "min(max(offset, start), end)",
        "max(offset, start)",
        f"{COMMANDS} -m 'not kafka' -k no_further",
    ),
    PlantedBug(
        "what is written while it reads is printed",
        "cli/consume.py",
        "                    if follow or record.offset < ends[record.topic_partition]:",
        "                    if record:",
        f"{COMMANDS} -m 'not kafka' -k where_the_topic_ended",
    ),
    PlantedBug(
        "the zone of a time is left out",
        "fleet/moments.py",
        "        moment = moment if moment.tzinfo else moment.astimezone()",
        "        moment = moment.replace(tzinfo=None).astimezone()",
        f"{COMMANDS} -k the_zone",
    ),
    # Offsets as files, shifts, ends.
    PlantedBug(
        "a shift goes the other way",
        "fleet/offset_reset.py",
        "_committed_in(before, tp) + by",
        "_committed_in(before, tp) - by",
        f"{GROUPS}::test_a_shift_of_one_partition_leaves_the_other[ours]",
    ),
    PlantedBug(
        "a dry run moves the group",
        "cli/group.py",
        "        if dry_run:\n            return\n",
        "",
        f"{GROUPS}::test_a_dry_run_changes_nothing_and_is_no_failure[ours]",
    ),
    PlantedBug(
        "offsets of other groups in a file are taken",
        "cli/group.py",
        "        if len(row) == 4 and row[0] != group:\n",
        "        if False:\n",
        f"{GROUPS}::test_a_file_of_kafkas_tool_is_read",
    ),
    PlantedBug(
        "the header of a file is an offset",
        "cli/group.py",
        "if not row or [cell.strip().lower() for cell in row[-3:]] == [",
        "if not row or [] == [",
        f"{GROUPS}::test_a_file_of_kafkas_tool_is_read",
    ),
    PlantedBug(
        "a commit goes past the end that was asked for",
        "cli/consume.py",
        "min(consumer.position(tp), self._known[tp])",
        "consumer.position(tp)",
        f"{GROUPS}::test_a_group_reads_up_to_a_time_and_commits_no_further[ours]",
    ),
    PlantedBug(
        "records behind the end are printed",
        "cli/consume.py",
        "shown = [one for one in records if ends is None or ends.is_before(one)]",
        "shown = list(records)",
        f"{GROUPS}::test_a_group_reads_up_to_a_time_and_commits_no_further[ours]",
    ),
    PlantedBug(
        "the list of groups counts lag that is none",
        "cli/group.py",
        "behind = [ends[tp] - offset for tp,",
        "behind = [ends[tp] for tp,",
        f"{GROUPS}::test_the_list_of_groups_has_members_lag_and_topics[ours]",
    ),
    # Bytes in JSON.
    PlantedBug(
        "bytes that are not text lose something in JSON",
        "cli/output.py",
        '        return {"base64": base64.b64encode(data).decode()}\n',
        '        return data.decode(errors="backslashreplace")\n',
        f"{EXACT}::test_any_bytes_come_back_from_json",
    ),
    PlantedBug(
        "text that looks like base64 is taken for it",
        "cli/output.py",
        "    if isinstance(value, str):\n        return value.encode()\n",
        "    if isinstance(value, str) and value[:1] == '{':\n        value = json.loads(value)\n"
        "    if isinstance(value, str):\n        return value.encode()\n",
        f"{EXACT}::test_text_that_looks_like_the_marker_stays_text",
    ),
    PlantedBug(
        "a copied record gets a new time",
        "cli/produce.py",
        "timestamp_ms=one.timestamp_ms,",
        "timestamp_ms=None,",
        f"{EXACT}::test_a_topic_is_copied_exactly[ours]",
    ),
    # What is shown.
    PlantedBug(
        "columns that do not fit are left out",
        "cli/tables.py",
        "            yield part\n            part = [first]\n",
        "            yield part\n            return\n",
        f"{TABLES}::test_columns_that_do_not_fit_follow_below_with_the_first_again",
    ),
    PlantedBug(
        "a table in a pipe begins with its title",
        "cli/output.py",
        "if title is not None and sys.stderr.isatty():\n            warn(title)",
        "if title is not None:\n            tell(title)",
        f"{TABLES}::test_a_table_in_a_pipe_is_plain",
    ),
    PlantedBug(
        "help breaks words at their hyphens",
        "cli/helping.py",
        "break_on_hyphens=False, break_long_words=False",
        "break_long_words=False",
        HELP,
    ),
    PlantedBug(
        "a hint names a stranger's package",
        "errors.py",
        'if place.scheme == "file":',
        "if False:",
        "tests/test_install_hints.py -k names_the_clone",
    ),
    PlantedBug(
        "completion waits as long as a cluster likes",
        "cli/completion.py",
        "    thread.join(LIMIT_S)\n",
        "    thread.join()\n",
        "tests/cli/test_completion.py -k never_hangs",
    ),
    PlantedBug(
        "the picture goes on while members leave",
        "cli/demo_picture.py",
        "end = max(begin + 1.0, last if end_s is None else end_s)",
        "end = max(begin + 1.0, last)",
        "tests/cli/test_demo.py -k ends_before_the_good_byes",
    ),
    PlantedBug(
        "a file with a refused setting ends as if all were well",
        "cli/config.py",
        "    if refused or explained.problem:\n",
        "    if explained.problem:\n",
        "tests/cli/test_config.py -k exit_code_1",
    ),
    PlantedBug(
        "a line of a properties file that goes on is cut",
        "cli/config.py",
        'r"\\1", text)',
        'r"\\1\\n", text)',
        "tests/cli/test_config.py -k line_by_line",
    ),
    # What pipes and people get.
    PlantedBug(
        "a pipe does not get the facts of a table's title",
        "cli/output.py",
        "        if facts:\n",
        "        if facts and title is None:\n",
        f"{TABLES} -k facts_in_a_pipe",
    ),
    PlantedBug(
        "tables in a pipe run into each other",
        "cli/output.py",
        "            if number or not is_first:\n",
        "            if number:\n",
        f"{TABLES} -k facts_in_a_pipe",
    ),
    PlantedBug(
        "a refusal does not say what to type",
        "cli/hints.py",
        "error.code not in HINTS or",
        "error.code in HINTS or",
        "tests/cli/test_hints.py -k followed_by",
    ),
    PlantedBug(
        "a hint comes after a command that is named already",
        "cli/hints.py",
        'or "`shoal " in text',
        "",
        "tests/cli/test_hints.py -k stay_as_they_are",
    ),
    PlantedBug(
        "a switch in the environment is whatever stands there",
        "cli/connecting.py",
        "    for name in found.keys() & _TRUE_OR_FALSE:\n",
        "    for name in ():\n",
        f"{COMMANDS} -m 'not kafka' -k switch_in_the_environment",
    ),
)
