"""Finding and loading the C kernel; its checksum against the package's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ConfigError
from shoal.records import kernel
from shoal.records.checksum import crc32c
from tests.records.generate import needs_kernel, using


def test_python_can_be_forced() -> None:
    with using("python"):
        assert kernel.native() is None
        assert kernel.NAME == "python"


@needs_kernel
def test_c_can_be_forced() -> None:
    with using("c"):
        assert kernel.native() is not None
        assert kernel.NAME == "c"


def test_the_module_has_no_other_surprises() -> None:
    with pytest.raises(AttributeError, match="NAMES"):
        kernel.__getattr__("NAMES")


@pytest.fixture
def not_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kernel, "_FILE", str(tmp_path / "absent.so"))
    monkeypatch.setattr(kernel, "_loaded", {})


@pytest.mark.usefixtures("not_built")
def test_without_a_kernel_python_does_the_work() -> None:
    with using("auto"):
        assert kernel.native() is None


@pytest.mark.usefixtures("not_built")
def test_forcing_a_kernel_which_was_not_built_says_what_to_do() -> None:
    with using("c"), pytest.raises(ConfigError, match=r"not built .* run `make setup` again"):
        kernel.native()


@pytest.mark.usefixtures("not_built")
def test_a_wish_that_does_not_exist_is_an_error() -> None:
    with using("fast"), pytest.raises(ConfigError, match="SHOAL_KERNEL='fast' is not one of auto"):
        kernel.native()


def test_a_library_of_something_else_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not version 10 of the kernel; build it again"):
        kernel.load("libc.so.6" if sys.platform == "linux" else "libSystem.dylib")


def test_the_broker_s_way_does_not_load_numpy() -> None:
    code = (
        "from shoal.records.batch import decode_batch, encode_batch\n"
        "decode_batch(encode_batch([(b'k', b'v', (), 0)] * 100))\n"
        "import sys; sys.exit('numpy' in sys.modules or 'pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@needs_kernel
@given(st.integers(0, 5000), st.integers(0, 2**32))
def test_the_checksum_is_the_same_with_and_without_the_instruction(size: int, seed: int) -> None:
    data = (seed.to_bytes(5, "big") * (size // 5 + 1))[:size]
    try:
        for allowed in (True, False):
            library = kernel.load(kernel._FILE, crc_instruction=allowed)
            assert library.shoal_crc32c(data, len(data)) == crc32c(data)
    finally:
        kernel.load(kernel._FILE)


@pytest.mark.parametrize("data", [b"abc", bytearray(b"abc"), memoryview(b"xabc")[1:]])
def test_addresses_are_those_of_the_bytes(data: bytes) -> None:
    import ctypes

    assert ctypes.string_at(kernel.address_of(data), 3) == b"abc"


def test_scratch_memory_is_used_again_but_not_kept_if_large() -> None:
    kernel._SPARE.clear()
    with kernel.scratch(100_000) as first, kernel.scratch(100_000) as other:
        assert first is not other
    with kernel.scratch(70_000) as again:
        assert again in (first, other)
        assert len(again) == 100_000
    with kernel.scratch(200_000) as larger:
        assert len(larger) == 200_000
    with kernel.scratch(10) as small:
        assert len(small) == 10
    with kernel.scratch(5_000_000):
        pass
    assert max(map(len, kernel._SPARE)) == 200_000


def test_the_index_has_the_size_the_kernel_gives_it() -> None:
    source = (Path(kernel.__file__).parent / "kernel_read.h").read_text()
    fields = source.split("one wanted record")[1].split("} Row;")[0]
    assert "int64_t offset, timestamp;" in fields
    assert kernel.INDEX_BYTES == 2 * 8 + 6 * 4


@pytest.mark.slow
def test_a_machine_without_a_compiler_builds_no_kernel_and_no_error(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "-b", str(tmp_path), "-t", str(tmp_path)],
        cwd=root,
        env={**os.environ, "CC": "/bin/false"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.rglob("*.so"))
