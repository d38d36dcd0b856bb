"""The lab: how groups were rebalanced, then and now, in virtual time.

from shoal.lab import built_in, compare

for run in compare(built_in("member-crashes")):
    print(run.scheme.name, run.metrics.stopped_partition_s, len(run.trace.messages))
"""

from __future__ import annotations

from shoal.lab.built_in import BUILT_IN, built_in
from shoal.lab.metrics import Metrics
from shoal.lab.running import SCHEMES, Run, compare, run_scenario
from shoal.lab.scenario import Act, Event, RegistrySettings, Scenario, Timing, Work
from shoal.lab.scenario_file import load, parse
from shoal.lab.trace import Trace

__all__ = [
    "BUILT_IN",
    "SCHEMES",
    "Act",
    "Event",
    "Metrics",
    "RegistrySettings",
    "Run",
    "Scenario",
    "Timing",
    "Trace",
    "Work",
    "built_in",
    "compare",
    "load",
    "parse",
    "run_scenario",
]
