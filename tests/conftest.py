"""Shared settings of the test suite."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# These machines are shared: a deadline would judge the neighbours, not the code.
settings.register_profile("shoal", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shoal")
