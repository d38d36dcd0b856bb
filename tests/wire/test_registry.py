"""The table of APIs agrees with the declarations, and costs nothing to import."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shoal.wire.apis.registry import API, ApiKey, ApiSpec
from shoal.wire.fields import MISSING, fields_of
from shoal.wire.schema import Message


def test_every_key_has_a_row():
    assert set(API) == set(ApiKey)


@pytest.mark.parametrize("spec", API.values(), ids=lambda spec: spec.name)
def test_a_row_agrees_with_its_declarations(spec: ApiSpec):
    for kind, suffix in ((spec.request, "Request"), (spec.response, "Response")):
        assert issubclass(kind, Message)
        assert kind.__name__ == spec.name + suffix
        assert spec.key == kind.API_KEY
        assert (spec.min_version, spec.max_version) == (kind.MIN_VERSION, kind.MAX_VERSION)
        assert spec.flexible_from == kind.FLEXIBLE_FROM
        for version in range(spec.min_version, spec.max_version + 1):
            assert kind.is_flexible(version) == spec.is_flexible(version)


@pytest.mark.parametrize("spec", API.values(), ids=lambda spec: spec.name)
def test_a_field_that_may_be_absent_has_a_default(spec: ApiSpec):
    for kind in (spec.request, spec.response):
        for field in fields_of(kind):
            whole = (field.spec.since, field.spec.until) == (0, None)
            assert whole or field.default is not MISSING, field.name


def test_header_versions_follow_flexibility():
    heartbeat = API[ApiKey.HEARTBEAT]
    assert [heartbeat.request_header_version(v) for v in (3, 4)] == [1, 2]
    assert [heartbeat.response_header_version(v) for v in (3, 4)] == [0, 1]
    versions = API[ApiKey.API_VERSIONS]
    assert [versions.request_header_version(v) for v in (2, 3)] == [1, 2]
    assert [versions.response_header_version(v) for v in (2, 3, 4)] == [0, 0, 0]
    handshake = API[ApiKey.SASL_HANDSHAKE]
    assert [handshake.request_header_version(v) for v in (0, 1)] == [1, 1]


def test_versions_are_ranges():
    assert API[ApiKey.PRODUCE].has_version(3)
    assert not API[ApiKey.PRODUCE].has_version(2)
    assert not API[ApiKey.PRODUCE].has_version(14)


@pytest.mark.slow
def test_the_table_imports_no_api_and_nothing_heavy():
    program = (
        "import sys, shoal.wire.frames\n"
        "apis = [m for m in sys.modules if m.startswith('shoal.wire.apis.')]\n"
        "heavy = {'numpy', 'pyarrow', 'asyncio', 'typer', 'socket'} & set(sys.modules)\n"
        "print(apis, heavy)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "['shoal.wire.apis.registry'] set()"
