"""What pyproject.toml cannot say: the wheel holds a program, no extension module, so one serves every Python."""

import os

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel


class PlatformWheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        target = os.environ.get("CARGO_BUILD_TARGET", "")
        if not target.endswith("-linux-musl"):
            return ("py3", "none", super().get_tag()[2])
        # The program is static, and so needs no C library: neither that of manylinux nor that of musllinux.
        architecture = target.partition("-")[0]
        systems = ("manylinux_2_17", "manylinux2014", "musllinux_1_1")
        return ("py3", "none", ".".join(f"{system}_{architecture}" for system in systems))


setup(cmdclass={"bdist_wheel": PlatformWheel})
