"""Images of containers, made of packages that are installed here: nothing is downloaded, and no registry is asked."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

BUSYBOX = Path("/bin/busybox")
_TOOLS = Path(__file__).parents[2] / "workflows/variant-calling/tools"
# There is no YAML for process 1 of a laboratory, which imports this, too.
_NAMED = re.compile(r'dockerPull: "([^"]+)"')
#: What tools of tests use, and StreamFlow itself.
PACKAGES = (
    *("dash", "bash", "coreutils", "findutils", "grep", "gzip", "mawk", "procps", "sed", "tar"),
    *("libpython3-stdlib", "python3-minimal"),
)
#: What the tools of the template workflows/variant-calling are.
VARIANT_CALLING = ("bwa", "samtools", "bcftools")
#: The words of engines to import an archive.
IMPORT = ("import", "--change", 'CMD ["/bin/sh"]')
_QUERY = "${Package}:${Architecture}\t${Package}\t${Pre-Depends}, ${Depends}\t${Provides}\n"
_SKIPPED = ("/var", *(f"/usr/share/{name}" for name in ("doc", "man", "locale", "info", "lintian", "bug", "perl")))
_PLACES = ("/dev", "/etc", "/home", "/proc", "/root", "/run", "/sys", "/tmp", "/var")
_USERS = {
    "etc/passwd": "root:x:0:0::/root:/bin/sh\nuser:x:1234:1234::/tmp:/bin/sh\n",
    "etc/group": "root:x:0:\nuser:x:1234:\n",
}


def write_debian(tar: tarfile.TarFile, further: Iterable[str] = ()) -> None:
    """Write the files of :data:`PACKAGES`, and of the packages that these depend on: about 60 MB.

    :param further: names of more packages, which should be installed
    """
    # Where /bin is a link to /usr/bin, packages have files in both.
    names = {link for link in ("/bin", "/sbin", "/lib", "/lib64") if os.path.islink(link)} | set(_PLACES)
    for path in _dpkg("-L", *_with_dependencies((*PACKAGES, *further))).splitlines():
        if path.startswith("/") and not path.startswith(_SKIPPED) and os.path.lexists(path):
            directory, _, name = path.rpartition("/")
            names.add(f"{os.path.realpath(directory or '/').rstrip('/')}/{name}")
    for name in sorted(names):
        _add(tar, name, name)
    _add(tar, "/usr/bin/awk", "/usr/bin/mawk")  # An alternative, hence of no package.
    _add_users(tar)


def write_busybox(tar: tarfile.TarFile) -> None:
    """One static program, and links to it: no bash, no Python, no C library."""
    for name in ("/bin", *_PLACES):
        _add(tar, name, os.path.realpath(name))
    _add(tar, "/bin/busybox", str(BUSYBOX))
    for name in subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if name != "busybox":
            entry = tarfile.TarInfo(f"bin/{name}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
    _add_users(tar)


IMAGES: Mapping[str, Callable[[tarfile.TarFile], None]] = {"sfio-test": write_debian, "sfio-busybox": write_busybox}


def import_variant_calling(environment: Mapping[str, str]) -> None:
    """Give a dockerd one image with all of :data:`VARIANT_CALLING`, under each name that a tool of the template has.

    :param environment: in which `docker` finds it
    :raises subprocess.CalledProcessError: if it is not imported
    """
    first, *others = sorted({name for path in _TOOLS.glob("*.cwl") for name in _NAMED.findall(path.read_text())})
    variables = {**os.environ, **environment}
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            write_debian(archive, VARIANT_CALLING)
        file.seek(0)
        subprocess.run(
            ["docker", *IMPORT, "-", first], stdin=file, stdout=subprocess.DEVNULL, env=variables, check=True
        )
    for name in others:
        subprocess.run(["docker", "tag", first, name], env=variables, check=True)


def _with_dependencies(wanted: Iterable[str]) -> set[str]:
    """Installed packages, as `dpkg-query -L` wants their names."""
    packages: dict[str, tuple[str, str]] = {}
    provided: dict[str, str] = {}
    for line in _dpkg("-W", "-f", _QUERY).splitlines():
        full, name, depends, provides = line.split("\t")
        packages.setdefault(name, (full, depends))
        provided.update({word.split()[0]: name for word in provides.split(",") if word.strip()})
    chosen: set[str] = set()
    queue = list(wanted)
    while queue:
        name = queue.pop()
        name = name if name in packages else provided.get(name, "")
        if name and name not in chosen:
            chosen.add(name)
            for group in packages[name][1].split(","):
                names = [word.split("(")[0].split(":")[0].strip() for word in group.split("|")]
                queue += [found for found in names if found in packages or found in provided][:1]
    return {packages[name][0] for name in chosen}


def _add_users(tar: tarfile.TarFile) -> None:
    for name, text in _USERS.items():
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(text), 0o644
        tar.addfile(entry, io.BytesIO(text.encode()))


def _add(tar: tarfile.TarFile, name: str, source: str) -> None:
    entry = tar.gettarinfo(source, name.lstrip("/"))
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    if name == "/root":  # So that others find what a volume has below it.
        entry.mode = 0o755
    if entry.isreg():
        with open(source, "rb") as file:
            tar.addfile(entry, file)
    else:
        tar.addfile(entry)


def _dpkg(*words: str) -> str:
    return subprocess.run(["dpkg-query", *words], capture_output=True, text=True, check=True).stdout
