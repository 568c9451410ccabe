"""Says what pyproject.toml cannot say.

The wheel holds a program, no extension module: one wheel serves every Python. A release names the repository in
`SFIO_REPOSITORY`, for instance `https://github.com/OWNER/streamflow-io`: then the links of the README are absolute.
"""

import os
import re
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.dist import Distribution

REPOSITORY = os.environ.get("SFIO_REPOSITORY", "").rstrip("/")
PAGES = {"Documentation": "docs/index.md", "Changelog": "CHANGELOG.md"}


class NoticedDistribution(Distribution):
    def parse_config_files(self, *arguments: object, **options: object) -> None:
        super().parse_config_files(*arguments, **options)
        # scripts/wheels.sh writes the licences of the crates.
        self.metadata.license_files += [str(path) for path in Path().glob("NOTICES.txt")]


class PlatformWheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        target = os.environ.get("CARGO_BUILD_TARGET", "")
        if not target.endswith("-linux-musl"):
            return ("py3", "none", super().get_tag()[2])
        # The program is static, and so needs no C library: neither that of manylinux nor that of musllinux.
        architecture = target.partition("-")[0]
        systems = ("manylinux_2_17", "manylinux2014", "musllinux_1_1")
        return ("py3", "none", ".".join(f"{system}_{architecture}" for system in systems))


def readme() -> str:
    """Return the README; with `REPOSITORY`, with absolute links."""
    text = Path("README.md").read_text()
    if not REPOSITORY:
        return text
    pictures = re.sub(r"(!\[[^\]]*\]\()(?![a-z]+:|#)", rf"\1{REPOSITORY}/raw/main/", text)
    return re.sub(r"(?<!\!)(\[[^\[\]]*\]\()(?![a-z]+:|#)", rf"\1{REPOSITORY}/blob/main/", pictures)


# Link-time optimization takes most of a build. Only the static program of a wheel is worth the wait.
os.environ.setdefault("SETUPTOOLS_RUST_CARGO_PROFILE", "release" if os.environ.get("CARGO_BUILD_TARGET") else "quick")
urls = {name: f"{REPOSITORY}/blob/main/{page}" for name, page in PAGES.items()} | {"Repository": REPOSITORY}
setup(
    distclass=NoticedDistribution,
    cmdclass={"bdist_wheel": PlatformWheel},
    long_description=readme(),
    long_description_content_type="text/markdown",
    project_urls=urls if REPOSITORY else {},
)
