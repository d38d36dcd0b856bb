"""What a scrape says, as Prometheus' own parsers read it."""

from __future__ import annotations

import urllib.request

from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

Samples = dict[str, dict[tuple[str, ...], float]]
"""Sample name → label values → value."""


def page(url: str, **headers: str) -> str:
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read().decode())


def samples(text: str, *, openmetrics: bool = False) -> Samples:
    found: Samples = {}
    for family in (parse_openmetrics if openmetrics else parse_text)(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def scrape(url: str) -> Samples:
    """Both formats; what the first one tells, the second must tell, too."""
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    modern = samples(page(url, **accept), openmetrics=True)
    plain = samples(page(url))
    assert modern.keys() <= plain.keys()
    return plain
