"""Bugs planted in metrics and their server, see ``tests/planted``."""

from __future__ import annotations

from tests.planted.bugs import PlantedBug

EXPOSITION = "tests/metrics/test_exposition.py"
SERVER = "tests/metrics/test_server.py"

PLANTED = (
    PlantedBug(
        "a name can end its label",
        "metrics/exposition.py",
        """'"': r"\\"",""",
        "",
        f"{EXPOSITION} -k hostile",
    ),
    PlantedBug(
        "a name can end its line",
        "metrics/exposition.py",
        """_ESCAPES: Final = str.maketrans({"\\\\": r"\\\\", '"': r"\\"", "\\n": r"\\n"})""",
        """_ESCAPES: Final = str.maketrans({"\\\\": r"\\\\", '"': r"\\""})""",
        f"{EXPOSITION} -k hostile",
    ),
    PlantedBug(
        "buckets are not added up",
        "metrics/exposition.py",
        "        seen += count",
        "        seen = count",
        f"{EXPOSITION} -k added_up",
    ),
    PlantedBug(
        "counters lose their ending",
        "metrics/exposition.py",
        'name = family.name + ("_total" if family.kind == "counter" else "")',
        "name = family.name",
        f"{EXPOSITION} -k people_query",
    ),
    PlantedBug(
        "both formats of a scrape are kept whole",
        "metrics/exposition.py",
        'if family.kind == "counter" else plain\n',
        "\n",
        f"{EXPOSITION} -k share_what_they_can",
    ),
    PlantedBug(
        "OpenMetrics has the counters of the other format",
        "metrics/exposition.py",
        'texts[True] += pieces(family, openmetrics=True) if family.kind == "counter" else plain\n',
        "texts[True] += plain\n",
        f"{EXPOSITION} -k share_what_they_can",
    ),
    PlantedBug(
        "all samples are made before the first is told",
        "metrics/exposition.py",
        "    lines = chain(head, _lines(family))\n",
        "    lines = iter([*head, *_lines(family)])\n",
        f"{EXPOSITION} -k little_more_than_its_text",
    ),
    PlantedBug(
        "a client that does not read has everything copied for it",
        "metrics/server.py",
        "                await writer.drain()  # what",
        "                await asyncio.sleep(0)  # what",
        f"{SERVER} -k not_sent_everything",
    ),
    PlantedBug(
        "the length of an answer is that of its first piece",
        "metrics/server.py",
        "{sum(map(len, answer.body))}",
        "{len(answer.body[0])}",
        f"{SERVER} -k format_it_accepts",
    ),
    PlantedBug(
        "a wrong token is as good as the right one",
        "metrics/server.py",
        "        return hmac.compare_digest(",
        "        return bool(given) or hmac.compare_digest(",
        f"{SERVER} -k without_the_token",
    ),
    PlantedBug(
        "health needs no token",
        "metrics/server.py",
        "        if self._token and not self._knows_token(",
        '        if self._token and path != "/health" and not self._knows_token(',
        f"{SERVER} -k without_the_token",
    ),
    PlantedBug(
        "anybody may read metrics of a machine",
        "metrics/server.py",
        "        if not token and not is_loopback(host):",
        "        if False:",
        f"{SERVER} -k only_with_a_token",
    ),
    PlantedBug(
        "slow clients hold the server",
        "metrics/server.py",
        "            async with asyncio.timeout(PATIENCE_S):",
        "            async with asyncio.timeout(None):",
        f"{SERVER} -k says_nothing",
    ),
    PlantedBug(
        "there is no limit to connections",
        "metrics/server.py",
        "        if len(self._tasks) >= CONNECTIONS_MAX:",
        "        if False:",
        f"{SERVER} -k can_carry",
    ),
    PlantedBug(
        "what is not ready says it is",
        "metrics/server.py",
        "                if reason:",
        "                if False:",
        f"{SERVER} -k ready_says",
    ),
)
