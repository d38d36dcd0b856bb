"""CRC-32C: known values, and how it is loaded."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from shoal.records import checksum


@pytest.mark.parametrize(
    ("data", "expected"),
    # RFC 3720, B.4
    [
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_it_is_the_castagnoli_polynomial(data: bytes, expected: int) -> None:
    assert checksum.crc32c(data) == expected
    assert checksum.crc32c(memoryview(bytearray(data))) == expected


def test_loading_it_does_not_load_the_whole_package() -> None:
    code = "import shoal.records.checksum, sys; sys.exit('importlib.metadata' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_another_layout_of_the_package_works_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum, "find_spec", lambda name: None)
    assert checksum._load()(b"123456789") == 0xE3069283
    spec = importlib.util.find_spec("crc32c")
    monkeypatch.setattr(checksum, "find_spec", lambda name: spec)
    assert checksum._load()(b"123456789") == 0xE3069283
