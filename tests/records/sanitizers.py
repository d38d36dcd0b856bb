"""Builds the C parts with AddressSanitizer and UBSan, for whoever wants to run on them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src" / "shoal"
_KERNEL = ("records/kernel.c", "records/kernel_crc32c.c", "records/kernel_write.c")
#: What ``tests.records.sanitized`` looks for, and what each is made of.
PARTS = {
    "shoal.records._objects.so": ("records/objects.c",),
    "shoal.client._sending.so": ("client/sending.c", "records/kernel_crc32c.c"),
    "_kernel.so": _KERNEL,
    "_json_kernel.so": ("spark/json_kernel.c",),
}
_OPTIONS = ("-std=c11", "-g", "-O1", "-shared", "-fPIC", "-D_POSIX_C_SOURCE=200809L")


def find_compiler(directory: Path) -> list[str] | None:
    """A compiler with both sanitizers, tried out on an empty program; None if there is none."""
    empty = directory / "empty.c"
    empty.write_text("int main(void) { return 0; }\n")
    for compiler in ("gcc", "clang", "cc"):
        command = [compiler, "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        if shutil.which(compiler):
            made = [*command, str(empty), "-o", str(directory / "empty")]
            if subprocess.run(made, capture_output=True, check=False).returncode == 0:
                return command
    return None


def build(compiler: list[str], directory: Path) -> dict[str, str]:
    """The C parts, built into ``directory``; the environment for a Python that runs on them."""
    include = sysconfig.get_path("include")
    for name, sources in PARTS.items():
        files = [str(SOURCES / source) for source in sources]
        target = ["-o", str(directory / name)]
        subprocess.run([*compiler, *_OPTIONS, f"-I{include}", *files, *target], check=True)
    library = subprocess.run(
        [compiler[0], "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return {
        **os.environ,
        "LD_PRELOAD": library,
        # Others' leaks are not ours to report; a failed allocation is one that a test asked for.
        "ASAN_OPTIONS": "detect_leaks=0:exitcode=99:allocator_may_return_null=1",
        "PYTHONMALLOC": "malloc",  # or Python's own pools hide what is read beyond an object
        "SHOAL_TEST_EXTENSIONS": str(directory),
    }
