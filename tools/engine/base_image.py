"""Writes a base image for Python programs out of files of this machine, as a tar.

    python3 base_image.py | docker import - python:3.11-slim

A private engine has no network, so it cannot pull ``python:3.11-slim``. This makes a
stand-in: a small Debian and the Python that runs this, moved to ``/usr/local``.
Everything comes from packages that are installed here, as ``dpkg`` lists them, and
from Python's own prefix; shared libraries are found by asking the loader.
"""

from __future__ import annotations

import glob
import io
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# What a Dockerfile's RUN lines may use; with what these depend on.
PACKAGES = ["base-files", "bash", "coreutils", "dash", "findutils", "grep", "gzip"]
PACKAGES += ["libc-bin", "libstdc++6", "login", "netbase", "passwd", "procps", "sed"]
PACKAGES += ["tar"]
NOT_PACKED = (
    "/usr/share/doc",
    "/usr/share/man",
    "/usr/share/locale",
    "/usr/share/info",
)

# Debian makes these when it is installed; no package has them.
MADE = {
    "/etc/passwd": "root:x:0:0:root:/root:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "/etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "/etc/shadow": "root:*:19000:0:99999:7:::\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}

PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
LIBRARY = Path(sysconfig.get_path("stdlib"))
NOT_PYTHONS_OWN = {"site-packages", "dist-packages"}
NOT_USED = {"test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3"}


class Image:
    """A root file system that is written to an archive, each path once."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._names: set[str] = set()

    def folder(self, path: str, mode: int = 0o755) -> None:
        """Add an empty directory."""
        if self._is_new(path):
            info = _info(path, tarfile.DIRTYPE)
            info.mode = mode
            self._tar.addfile(info)

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        if self._is_new(path):
            info = _info(path, tarfile.SYMTYPE)
            info.linkname = target
            self._tar.addfile(info)

    def text(
        self, path: str, data: bytes, mode: int = 0o644, modified: float = 0.0
    ) -> None:
        """Add a file with this content."""
        if self._is_new(path):
            info = _info(path, tarfile.REGTYPE)
            info.mode, info.mtime, info.size = mode, int(modified), len(data)
            self._tar.addfile(info, io.BytesIO(data))

    def file(self, source: str, path: str) -> None:
        """Add a file, link or directory of this machine."""
        status = os.lstat(source)
        mode = status.st_mode & 0o7777
        if os.path.islink(source):
            self.link(path, os.readlink(source))
        elif os.path.isdir(source):
            self.folder(path, mode)
        elif os.path.isfile(source):
            # Python's compiled files name the time of their source.
            self.text(path, Path(source).read_bytes(), mode, status.st_mtime)

    def _is_new(self, path: str) -> bool:
        """Note a path, and add the directories above it."""
        if path in self._names or path == "/":
            return False
        parent = os.path.dirname(path)
        if parent not in self._names:
            self.folder(parent)
        self._names.add(path)
        return True


def _info(path: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path.lstrip("/"))
    info.type, info.mode = kind, 0o777
    return info


def installed_with_dependencies(names: list[str]) -> list[str]:
    """Packages that are installed here, and all that they need."""
    shown = "${Package}\t${Pre-Depends}, ${Depends}\n"
    needs: dict[str, list[str]] = {}
    for line in _output("dpkg-query", "-W", "-f", shown).splitlines():
        name, _, depends = line.partition("\t")
        choices = depends.replace("|", ",").split(",")
        needs[name] = [
            choice.split()[0].split(":")[0] for choice in choices if choice.split()
        ]
    found: list[str] = []
    while names:
        name = names.pop()
        if name in needs and name not in found:
            found.append(name)
            names += needs[name]
    return found


def files_of(packages: list[str]) -> Iterator[str]:
    """Where the files of packages really are, since /bin may be a link to /usr/bin."""
    for line in _output("dpkg-query", "-L", *packages).splitlines():
        if line.startswith("/") and not line.startswith(NOT_PACKED):
            folder, name = os.path.split(line)
            path = os.path.join(os.path.realpath(folder), name)
            if name not in ("", ".") and os.path.lexists(path):
                yield path


def libraries_of(programs: list[str]) -> set[str]:
    """The shared libraries that programs and modules load, by their usual paths."""
    lines = _output("ldd", *programs).splitlines()
    return {line.split()[2] for line in lines if " => /" in line}


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout


def add_debian(image: Image) -> None:
    """Add the packages, and what is made when Debian is installed."""
    for name in ("bin", "sbin", "lib", "lib64"):
        image.folder(f"/usr/{name}")
        image.link(f"/{name}", f"usr/{name}")
    for name in (
        "proc",
        "sys",
        "dev",
        "run",
        "root",
        "home",
        "srv",
        "opt",
        "usr/local",
    ):
        image.folder(f"/{name}")
    image.folder("/tmp", 0o1777)
    for path, text in MADE.items():
        image.text(path, text.encode())
    for path in sorted(files_of(installed_with_dependencies(list(PACKAGES)))):
        image.file(path, path)


def add_python(image: Image) -> None:
    """Add this Python, with pip, in /usr/local."""
    place = f"/usr/local/lib/{PYTHON}"
    for folder, below, names in os.walk(LIBRARY):
        unwanted = NOT_PYTHONS_OWN | NOT_USED
        below[:] = [each for each in below if each not in unwanted]
        to = os.path.join(place, os.path.relpath(folder, LIBRARY))
        for name in names:
            if not name.endswith((".a", ".opt-1.pyc", ".opt-2.pyc")):
                image.file(os.path.join(folder, name), os.path.normpath(f"{to}/{name}"))
    program = os.path.realpath(sys.executable)
    image.file(program, f"/usr/local/bin/{PYTHON}")
    for name in ("python3", "python"):
        image.link(f"/usr/local/bin/{name}", PYTHON)
    modules = glob.glob(str(LIBRARY / "lib-dynload" / "*.so"))
    for library in sorted(libraries_of([program, *modules])):
        # Where the loader looks without a cache.
        name = PurePosixPath(library).name
        image.file(os.path.realpath(library), f"/usr/lib/{_multiarch()}/{name}")
    add_pip(image, f"{place}/site-packages")


def _multiarch() -> str:
    return sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu"


def add_pip(image: Image, place: str) -> None:
    """Unpack the pip and setuptools that come with Python."""
    wheels = glob.glob(str(LIBRARY / "ensurepip" / "_bundled" / "*.whl"))
    wheels += glob.glob("/usr/share/python-wheels/pip-*.whl")  # Debian's own Python
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if not name.endswith("/"):
                    image.text(f"{place}/{name}", archive.read(name))


def main() -> None:
    """Write the image to standard output."""
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as tar:
        image = Image(tar)
        add_debian(image)
        add_python(image)


if __name__ == "__main__":
    main()
