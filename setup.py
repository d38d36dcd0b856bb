"""Builds the optional C kernel as a plain shared object, loaded with ctypes.

Everything else is in pyproject.toml. The kernel is not a Python extension module: it has no
init function and no ABI tag, so one file serves every Python version, and a machine without a
compiler installs the package all the same (records/kernel.py then runs the Python loops).
"""

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext


class PlainSharedObject(build_ext):
    def get_ext_filename(self, fullname: str) -> str:
        return fullname.replace(".", "/") + ".so"

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return list(ext.export_symbols or [])


class WheelForEveryPython(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(
    cmdclass={"bdist_wheel": WheelForEveryPython, "build_ext": PlainSharedObject},
    ext_modules=[
        Extension(
            "shoal.records._kernel",
            [
                "src/shoal/records/kernel.c",
                "src/shoal/records/kernel_crc32c.c",
                "src/shoal/records/kernel_write.c",
            ],
            depends=["src/shoal/records/kernel.h"],
            extra_compile_args=["-O3", "-std=c11", "-Wall", "-Wextra", "-fvisibility=hidden"],
            optional=True,
        )
    ],
)
