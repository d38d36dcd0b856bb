"""Bugs planted where settings of other clients are read, see ``tests/planted``."""

from __future__ import annotations

from tests.planted.bugs import PlantedBug


def _by(which: str) -> str:
    return f"tests/client/test_foreign_settings.py -k '{which}'"


_SETTINGS = "client/foreign_settings.py"

PLANTED = (
    PlantedBug(
        "the default reset of librdkafka is taken for the earliest",
        _SETTINGS,
        '    "largest": "latest",\n',
        '    "largest": "earliest",\n',
        _by("our_words"),
    ),
    PlantedBug(
        "kilobytes of another client are taken for bytes",
        _SETTINGS,
        "    return int(_float(value) * 1024)\n",
        "    return int(_float(value))\n",
        _by("our_words"),
    ),
    PlantedBug(
        "a certificate that is not to be verified is verified and nobody is told",
        _SETTINGS,
        '        ("true",), "certificates are always verified"',
        '        ("true", "false"), "certificates are always verified"',
        _by("what_to_do"),
    ),
    PlantedBug(
        "a proxy's password is shown",
        _SETTINGS,
        "jaas|proxy|",
        "jaas|",
        _by("no_secret"),
    ),
    PlantedBug(
        "a setting under another name wins over ours",
        "client/config.py",
        "        if key not in self._own and ours in self._said:\n",
        "        if False:\n",
        _by("counts_more"),
    ),
    PlantedBug(
        "what has no effect is not told",
        "client/config.py",
        "            logger.warning(\n",
        "            logger.debug(\n",
        _by("told_once"),
    ),
    PlantedBug(
        "fnv1a keeps its sign",
        "client/partitioner.py",
        "    return h if h < 0x80000000 else (1 << 32) - h\n",
        "    return h\n",
        _by("librdkafka_puts_them and fnv1a"),
    ),
    PlantedBug(
        "what oauth_cb is to be called with is lost",
        _SETTINGS,
        "        found = call(settings)\n",
        '        found = call("")\n',
        _by("brings_the_token"),
    ),
    PlantedBug(
        "a second thread enters a consumer unnoticed",
        "client/consumer.py",
        "        if before is not None and before != here:\n",
        "        if False:\n",
        "tests/client/test_threads.py -k second_thread",
    ),
    PlantedBug(
        "a setting of librdkafka has no row",
        _SETTINGS,
        '    "socket.max.fails": "one request without an answer ends its connection",\n',
        "",
        _by("every_setting_of_librdkafka"),
    ),
)
