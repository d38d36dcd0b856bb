"""Writes what people load into Grafana and Prometheus: a dashboard, and alerts with their reasons.

    python -m docs.generate_monitoring

Both are tables here, because JSON and YAML by hand drift from what is measured. A test scrapes a
broker and an exporter and looks for every metric that is named below.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

TARGET: Final = Path(__file__).parent / "monitoring"
DASHBOARD: Final = TARGET / "grafana-dashboard.json"
RULES: Final = TARGET / "prometheus-rules.yml"


class Panel(NamedTuple):
    """One graph: its title, its unit, and query → legend."""

    title: str
    unit: str
    queries: dict[str, str]
    about: str = ""


_JOB: Final = 'job=~"$job"'
_GROUP: Final = f'{_JOB},consumergroup=~"$group"'


def _quantile(share: float, metric: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) (rate({metric}_bucket{{{_JOB}}}[5m])))"


def _counted(metric: str, window: str) -> str:
    """How much a counter grew that may have been born meanwhile: a cause is not counted before it
    was the cause of something, and ``increase`` does not see a series come into being."""
    return f"({metric} - {metric} offset {window} >= 0 or {metric})"


ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "Groups": (
        Panel(
            "How far behind, in seconds",
            "s",
            {
                f"topk(10, shoal_group_lag_seconds{{{_GROUP}}})": "{{consumergroup}}",
            },
            "How long the oldest record has been there that the group has not committed.",
        ),
        Panel(
            "How far behind, in records",
            "short",
            {f"topk(10, shoal_group_lag{{{_GROUP}}})": "{{consumergroup}}"},
        ),
        Panel(
            "Records read per second",
            "short",
            {
                f"topk(10, sum by (consumergroup) "
                f"(rate(kafka_consumergroup_current_offset_sum{{{_GROUP}}}[5m])))": (
                    "{{consumergroup}}"
                )
            },
            "How fast committed offsets grow.",
        ),
        Panel(
            "Rebalances in ten minutes, by cause",
            "short",
            {
                "sum by (cause) "
                + _counted(f"shoal_group_rebalances_total{{{_GROUP}}}", "10m"): "{{cause}}"
            },
            "expired: a member was silent for too long, mostly because it processed too slowly.",
        ),
        Panel(
            "How long rebalances take",
            "s",
            {
                _quantile(0.5, "shoal_group_rebalance_seconds"): "half",
                _quantile(0.99, "shoal_group_rebalance_seconds"): "99 %",
            },
        ),
        Panel(
            "Members",
            "short",
            {f"topk(10, kafka_consumergroup_members{{{_GROUP}}})": "{{consumergroup}}"},
        ),
        Panel(
            "Groups by state",
            "short",
            {f"count by (state, protocol) (shoal_group_info{{{_JOB}}})": "{{protocol}} {{state}}"},
        ),
    ),
    "Topics": (
        Panel(
            "Records written per second",
            "short",
            {
                f"topk(10, sum by (topic) "
                f"(rate(kafka_topic_partition_current_offset{{{_JOB}}}[5m])))": "{{topic}}"
            },
        ),
        Panel(
            "Size of the log",
            "bytes",
            {f"topk(10, shoal_topic_bytes{{{_JOB}}})": "{{topic}}"},
            "Of a Shoal broker.",
        ),
    ),
    "Broker": (
        Panel(
            "Requests per second",
            "reqps",
            {f"sum by (api) (rate(shoal_requests_total{{{_JOB}}}[5m]))": "{{api}}"},
        ),
        Panel(
            "99 % of requests are answered within",
            "s",
            {_quantile(0.99, "shoal_request_seconds", "api"): "{{api}}"},
            "Waits for data (Fetch) and for members (JoinGroup) are part of it.",
        ),
        Panel(
            "Slowest answers of the last minute or two",
            "s",
            {f"topk(10, shoal_request_slowest_seconds{{{_JOB}}})": "{{api}}"},
        ),
        Panel(
            "From produce to on the disk",
            "s",
            {
                _quantile(0.5, "shoal_durable_ack_seconds"): "half",
                _quantile(0.99, "shoal_durable_ack_seconds"): "99 %",
            },
        ),
        Panel(
            "Lag of the event loop",
            "s",
            {_quantile(0.99, "shoal_loop_lag_seconds"): "99 %"},
            "So long everybody waits before anything is done for them.",
        ),
        Panel(
            "Bytes per second",
            "Bps",
            {
                f"sum(rate(shoal_received_bytes_total{{{_JOB}}}[5m]))": "in",
                f"sum(rate(shoal_sent_bytes_total{{{_JOB}}}[5m]))": "out",
                f"sum(rate(shoal_appended_bytes_total{{{_JOB}}}[5m]))": "appended",
            },
        ),
        Panel(
            "Connections, waiting fetches, open transactions",
            "short",
            {
                f"sum(shoal_connections{{{_JOB}}})": "connections",
                f"sum(shoal_fetches_waiting{{{_JOB}}})": "waiting fetches",
                f"sum(shoal_transactions_open{{{_JOB}}})": "open transactions",
            },
        ),
        Panel(
            "Memory held for clients",
            "bytes",
            {
                f"sum by (use) (shoal_memory_bytes{{{_JOB}}})": "{{use}}",
                f"sum(shoal_memory_limit_bytes{{{_JOB}}})": "limit",
                f"sum(process_resident_memory_bytes{{{_JOB}}})": "the whole process",
            },
        ),
        Panel(
            "Errors and refusals per minute",
            "short",
            {
                f"sum by (error) (rate(shoal_errors_total{{{_JOB}}}[5m])) * 60": "{{error}}",
                f"sum by (reason) (rate(shoal_refused_total{{{_JOB}}}[5m])) * 60": "{{reason}}",
            },
        ),
        Panel(
            "Free on the disk",
            "bytes",
            {f"sum by (instance) (shoal_disk_free_bytes{{{_JOB}}})": "{{instance}}"},
        ),
    ),
    "Clients, by their own account (KIP-714)": (
        Panel(
            "Latency of produce requests",
            "ms",
            {
                f"topk(10, kafka_client_producer_request_latency_avg{{{_JOB}}})": "{{client_id}}",
            },
            "Only of clients that push: see shoal telemetry.",
        ),
        Panel(
            "Latency of fetches",
            "ms",
            {
                f"topk(10, kafka_client_consumer_fetch_manager_fetch_latency_avg{{{_JOB}}})": (
                    "{{client_id}}"
                ),
            },
        ),
        Panel(
            "Partitions assigned",
            "short",
            {
                f"topk(10, kafka_client_consumer_coordinator_assigned_partitions{{{_JOB}}})": (
                    "{{client_id}}"
                ),
            },
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    """The dashboard, as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row, members in ROWS.items():
        panels.append(
            {
                "type": "row",
                "title": row,
                "id": len(panels) + 1,
                "gridPos": {"h": 1, "w": 24, "x": 0, "y": top},
                "collapsed": False,
                "panels": [],
            }
        )
        top += 1
        for number, panel in enumerate(members):
            place = {"h": 8, "w": 8, "x": number % 3 * 8, "y": top + number // 3 * 8}
            panels.append(_graph(panel, len(panels) + 1, place))
        top += (len(members) + 2) // 3 * 8
    return {
        "title": "Shoal: groups, topics, broker",
        "uid": "shoal-overview",
        "description": "For shoal serve --metrics and shoal exporter.",
        "tags": ["kafka", "shoal"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": panels,
    }


def _graph(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "id": number,
        "title": panel.title,
        "description": panel.about,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend}
            for index, (query, legend) in enumerate(panel.queries.items())
        ],
    }


def _variables() -> list[dict[str, Any]]:
    source = {"type": "prometheus", "uid": "${datasource}"}

    def named(name: str, label: str, query: str) -> dict[str, Any]:
        return {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": source,
            "query": query,
            "refresh": 2,
            "includeAll": True,
            "multi": True,
            "current": {"text": "All", "value": "$__all"},
        }

    return [
        {"name": "datasource", "label": "Source", "type": "datasource", "query": "prometheus"},
        named("job", "Job", "label_values(kafka_brokers, job)"),
        named(
            "group",
            "Group",
            'label_values(kafka_consumergroup_members{job=~"$job"}, consumergroup)',
        ),
    ]


class Alert(NamedTuple):
    """One alert: when it fires, for how long that must hold, and why anybody should care."""

    name: str
    query: str
    holds: str
    severity: str
    summary: str
    reason: str


ALERTS: Final[dict[str, tuple[Alert, ...]]] = {
    "shoal-groups": (
        Alert(
            "GroupIsBehind",
            "shoal_group_lag_seconds > 300\n"
            "  and on (job, instance, consumergroup) kafka_consumergroup_members > 0",
            "5m",
            "warning",
            "{{ $labels.consumergroup }} is {{ $value | humanizeDuration }} behind",
            "Seconds, not records: a lag of a million is nothing for a busy topic and a day for a "
            "quiet one. Only of groups with members: abandoned ones stay behind for good.",
        ),
        Alert(
            "GroupIsFallingBehind",
            "deriv(shoal_group_lag_seconds[15m]) > 0.5 and shoal_group_lag_seconds > 60\n"
            "  and on (job, instance, consumergroup) kafka_consumergroup_members > 0",
            "15m",
            "warning",
            "{{ $labels.consumergroup }} reads at less than half the speed of its producers",
            "It loses more than half a second every second: it will not catch up by itself. More "
            "members, or faster ones.",
        ),
        Alert(
            "GroupLostItsMembers",
            "(kafka_consumergroup_members == 0\n"
            "  and max_over_time(kafka_consumergroup_members[1h]) > 0)\n"
            "  and on (job, instance, consumergroup) shoal_group_lag > 0",
            "10m",
            "critical",
            "nobody reads for {{ $labels.consumergroup }} any more, and records wait",
            "It had members within the last hour. A group that is done has no lag, and one that "
            "was abandoned long ago does not come back.",
        ),
        Alert(
            "MembersKeepExpiring",
            _counted('shoal_group_rebalances_total{cause="expired"}', "15m") + " > 2",
            "0m",
            "warning",
            "members of {{ $labels.consumergroup }} are thrown out again and again; "
            "try: shoal why {{ $labels.consumergroup }}",
            "Each time the group stops, and what was processed and not committed is processed "
            "again. Mostly max.poll.interval.ms is too short for the work, or a host is ill.",
        ),
        Alert(
            "GroupKeepsRebalancing",
            "sum by (job, instance, consumergroup) "
            + _counted("shoal_group_rebalances_total", "15m")
            + " > 10",
            "0m",
            "warning",
            "{{ $labels.consumergroup }} rebalanced {{ $value | humanize }} times in 15 minutes",
            "A rolling restart makes a rebalance for each member, and is over in minutes. More "
            "than that is a crash loop or an autoscaler that cannot decide.",
        ),
    ),
    "shoal-broker": (
        Alert(
            "BrokerIsGone",
            "shoal_broker_info offset 5m unless on (job, instance) shoal_broker_info",
            "2m",
            "critical",
            "the broker at {{ $labels.instance }} is not seen any more",
            "It was there five minutes ago. A restart takes seconds.",
        ),
        Alert(
            "PartitionsAreOffline",
            "shoal_partitions_offline > 0",
            "0m",
            "critical",
            "{{ $value }} partitions at {{ $labels.instance }} could not be opened",
            "Their records are neither read nor written. shoal log verify says what is wrong.",
        ),
        Alert(
            "RecordsCannotBeStored",
            _counted('shoal_errors_total{error="KAFKA_STORAGE_ERROR"}', "5m") + " > 0",
            "0m",
            "critical",
            "the disk of {{ $labels.instance }} refuses records",
            "It is full (less than the reserve is left) or broken. Producers try again and fill "
            "their buffers meanwhile.",
        ),
        Alert(
            "DiskIsFillingUp",
            "predict_linear(shoal_disk_free_bytes[6h], 86400) < 0\n"
            "  or shoal_disk_free_bytes / shoal_disk_bytes < 0.1",
            "30m",
            "warning",
            "the disk of {{ $labels.instance }} is full within a day, or nearly so",
            "Appends stop before the disk is full. Retention may be too long for what is written.",
        ),
        Alert(
            "AcknowledgementsAreSlow",
            "histogram_quantile(0.99, sum by (job, instance, le) "
            "(rate(shoal_durable_ack_seconds_bucket[5m]))) > 0.5",
            "10m",
            "warning",
            "1 % of producers of {{ $labels.instance }} wait more than half a second for the disk",
            "A disk that syncs in more than that is overloaded, or shared with somebody who is.",
        ),
        Alert(
            "LoopIsSlow",
            "histogram_quantile(0.99, sum by (job, instance, le) "
            "(rate(shoal_loop_lag_seconds_bucket[5m]))) > 0.1",
            "10m",
            "warning",
            "the broker at {{ $labels.instance }} is late by more than 100 ms",
            "Everybody waits so long, heartbeats included. The CPU is busy, or a request is too "
            "large: shoal_request_loop_seconds_max names the API.",
        ),
        Alert(
            "MemoryBudgetIsUsedUp",
            "sum by (job, instance) (shoal_memory_bytes)\n"
            "  / on (job, instance) shoal_memory_limit_bytes > 0.8",
            "5m",
            "warning",
            "clients make {{ $labels.instance }} hold most of the memory it gives them",
            "Beyond the budget the broker reads no more from them, so they slow down. Clients that "
            "do not take their replies, or too many large requests at once.",
        ),
        Alert(
            "FilesRunOut",
            "process_open_fds / process_max_fds > 0.8",
            "10m",
            "warning",
            "{{ $labels.instance }} has used most of the files it may open",
            "Each connection and each segment that is read takes one; then nobody can connect.",
        ),
    ),
    "shoal-monitoring": (
        Alert(
            "KafkaIsNotSeen",
            "absent(kafka_brokers)",
            "5m",
            "critical",
            "nothing tells about Kafka any more",
            "An exporter whose looks fail for five intervals tells nothing, rather than something "
            "old; then no other alert can fire.",
        ),
        Alert(
            "ExporterLooksFail",
            "increase(shoal_exporter_sweep_failures_total[15m]) > 3",
            "0m",
            "warning",
            "{{ $labels.instance }} cannot look at the cluster",
            "What it shows is old, and soon it shows nothing. /readyz has the reason.",
        ),
        Alert(
            "MetricsAreLeftOut",
            "sum by (job, instance) (shoal_metrics_dropped) > 0",
            "15m",
            "info",
            "{{ $labels.instance }} leaves out metrics, because there are too many series",
            "Whole metrics are missing, the finest first; shoal_metrics_dropped names them. Look "
            "at fewer groups, or raise the limit.",
        ),
    ),
}


def rules() -> dict[str, Any]:
    """The rules, as Prometheus loads them."""
    return {
        "groups": [
            {"name": name, "rules": [_rule(one) for one in alerts]}
            for name, alerts in ALERTS.items()
        ]
    }


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.query,
        "for": alert.holds,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "reason": alert.reason},
    }


def pages() -> dict[Path, str]:
    """File → its text."""
    head = "# Generated by `python -m docs.generate_monitoring`: change that instead.\n"
    return {
        DASHBOARD: json.dumps(dashboard(), indent=1) + "\n",
        RULES: head + yaml.safe_dump(rules(), sort_keys=False, width=100),
    }


def main() -> None:
    TARGET.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
