"""A recipe for Spack, which was never run: `spack repo add recipes/spack`, `spack dev-build py-streamflow-io@0.1.0`.

In July 2026, Spack has no `py-streamflow`, `py-msgspec` and `py-kubernetes-asyncio`, and older `py-aiofiles` and
`py-cwl-utils`. The package cannot be built before. A release adds `pypi` and the checksum of its source distribution.
"""

from spack.package import depends_on, license, version  # noqa: A004 - so it is called there
from spack_repo.builtin.build_systems.python import PythonPackage


class PyStreamflowIo(PythonPackage):
    """I/O-aware CWL workflows for StreamFlow: steps that stream, I/O tasks, storage bandwidth."""

    license("Apache-2.0")

    version("0.1.0")

    depends_on("c", type="build")
    depends_on("rust@1.85:", type="build")
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-setuptools-rust@1.10:", type="build")

    with_python = ("build", "run")
    depends_on("python@3.10:", type=with_python)
    depends_on("py-streamflow@0.2.0rc3:0.2.0", type=with_python)
    depends_on("py-aiofiles@23.2:", type=with_python)
    depends_on("py-aiohttp", type=with_python)
    depends_on("py-cryptography@42:", type=with_python)
    depends_on("py-cwl-utils@0.41:", type=with_python)
    depends_on("py-jinja2@3.1:", type=with_python)
    depends_on("py-jsonschema", type=with_python)
    depends_on("py-kubernetes-asyncio", type=with_python)
    depends_on("py-msgspec@0.21:", type=with_python)
    depends_on("py-pydantic@2.10:2", type=with_python)
    depends_on("py-requests@2.28:", type=with_python)
    depends_on("py-rich@13.7:", type=with_python)
    depends_on("py-ruamel-yaml@0.18:", type=with_python)
    depends_on("py-schema-salad@8.7:", type=with_python)
    depends_on("py-typing-extensions@4.12:", type=with_python)
