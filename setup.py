"""Builds the optional C parts and names wheels; everything else is in pyproject.toml.

The kernel is a plain shared object, loaded with ctypes: it has no init function and no ABI tag, so
one file serves every Python version. The extension modules keep to Python's limited API, so that
one file serves every CPython from the oldest supported one on. A machine without a compiler, or
without Python's headers, installs the package all the same: Python does the work then.

A wheel's name says what is inside: ``py3-none-any`` without any of it, ``py3-none-PLATFORM`` with
the kernel alone, ``cp311-abi3-PLATFORM`` with extension modules.

A wheel also says what it needs, for programs that look for what is known to be unsafe: a bill of
materials (CycloneDX) in its ``sboms`` directory (PEP 770), made from its own metadata.
"""

import json
import re
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext


class SharedObject(Extension):
    """C without Python in it: the same file for every version."""


OLDEST = "cp311"
FLAGS = ["-O3", "-std=c11", "-Wall", "-Wextra", "-fvisibility=hidden"]


class LimitedExtension(Extension):
    """A module for every CPython from ``OLDEST`` on, built by any of them."""

    def __init__(self, name: str, sources: list[str], depends: list[str]) -> None:
        super().__init__(
            name,
            sources,
            depends=depends,
            extra_compile_args=[*FLAGS, "-D_POSIX_C_SOURCE=200809L"],
            py_limited_api=True,
            optional=True,
        )


class BuildExtensions(build_ext):
    def get_ext_filename(self, fullname: str) -> str:
        if isinstance(self.ext_map.get(fullname), SharedObject):
            return fullname.replace(".", "/") + ".so"
        return super().get_ext_filename(fullname)

    def get_export_symbols(self, ext: Extension) -> list[str]:
        if isinstance(ext, SharedObject):
            return list(ext.export_symbols or [])
        return super().get_export_symbols(ext)

    def built(self) -> list[Extension]:
        """Those that were compiled: an optional one is left out where it does not compile."""
        return [each for each in self.extensions if Path(self.get_ext_fullpath(each.name)).exists()]


def bill_of_materials(distribution: Any) -> dict[str, Any]:
    """What the package is and what it needs, as CycloneDX 1.6; the same for the same metadata."""
    needed: dict[str, dict[str, Any]] = {}
    wanted = [(line, "") for line in distribution.install_requires]
    wanted += [
        (line, extra) for extra, lines in distribution.extras_require.items() for line in lines
    ]
    for line, extra in wanted:
        name = re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower()
        entry = needed.setdefault(
            name,
            {
                "type": "library",
                "bom-ref": f"pkg:pypi/{name}",
                "name": name,
                "purl": f"pkg:pypi/{name}",
                "scope": "optional" if extra else "required",
                "properties": [],
            },
        )
        where = f"shoal:requirement:{extra}" if extra else "shoal:requirement"
        entry["properties"].append({"name": where, "value": line})
    version = distribution.get_version()
    own = f"pkg:pypi/shoal@{version}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": "shoal",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "purl": own,
            }
        },
        "components": [needed[name] for name in sorted(needed)],
        "dependencies": [
            {"ref": own, "dependsOn": [needed[name]["bom-ref"] for name in sorted(needed)]},
            *({"ref": needed[name]["bom-ref"]} for name in sorted(needed)),
        ],
    }


class TruthfulWheel(bdist_wheel):
    def run(self) -> None:
        self.run_command("build")
        built = self.get_finalized_command("build_ext").built()
        self.distribution.ext_modules = built
        self.root_is_pure = not built
        super().run()

    def write_wheelfile(self, wheelfile_base: str, *more: Any) -> None:
        super().write_wheelfile(wheelfile_base, *more)
        directory = Path(wheelfile_base) / "sboms"
        directory.mkdir(exist_ok=True)
        (directory / "shoal.cdx.json").write_text(
            json.dumps(bill_of_materials(self.distribution), indent=1) + "\n", encoding="utf-8"
        )

    def get_tag(self) -> tuple[str, str, str]:
        python, abi, platform = super().get_tag()
        extensions = self.distribution.ext_modules
        if all(isinstance(each, SharedObject) for each in extensions):
            return "py3", "none", platform
        if all(isinstance(each, (SharedObject, LimitedExtension)) for each in extensions):
            return OLDEST, "abi3", platform
        return python, abi, platform


setup(
    cmdclass={"bdist_wheel": TruthfulWheel, "build_ext": BuildExtensions},
    ext_modules=[
        SharedObject(
            "shoal.records._kernel",
            [
                "src/shoal/records/kernel.c",
                "src/shoal/records/kernel_crc32c.c",
                "src/shoal/records/kernel_write.c",
            ],
            depends=["src/shoal/records/kernel.h", "src/shoal/records/kernel_read.h"],
            extra_compile_args=FLAGS,
            optional=True,
        ),
        SharedObject(
            "shoal.spark._json_kernel",
            ["src/shoal/spark/json_kernel.c"],
            extra_compile_args=FLAGS,
            optional=True,
        ),
        LimitedExtension(
            "shoal.records._objects",
            ["src/shoal/records/objects.c"],
            depends=["src/shoal/records/kernel.h", "src/shoal/records/kernel_read.h"],
        ),
        LimitedExtension(
            "shoal.client._sending",
            ["src/shoal/client/sending.c", "src/shoal/records/kernel_crc32c.c"],
            depends=["src/shoal/records/kernel.h"],
        ),
    ],
)
