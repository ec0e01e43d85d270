"""Finds the real libqatzip: installed, or out of Debian 13's packages through the machine's own package mirror."""

import ctypes.util
import os
import re
import subprocess
from pathlib import Path

PACKAGES = ("libqatzip3", "libqat4", "libusdm0")
SECONDS = 120


class NotFound(Exception):
    """libqatzip cannot be had here, and why."""


def find(folder: Path) -> dict[str, str]:
    """Environment for a subprocess that loads libqatzip.so.3. Raises NotFound."""
    if ctypes.util.find_library("qatzip"):
        return dict(os.environ)
    if not list(folder.glob("root/usr/lib/*/libqatzip.so.3")):
        _fetch(folder)
    libraries = sorted(folder.glob("root/usr/lib/*/libqatzip.so.3"))
    if not libraries:
        raise NotFound("Debian 13's packages hold no libqatzip.so.3")
    return {**os.environ, "LD_LIBRARY_PATH": str(libraries[0].parent)}


def _fetch(folder: Path) -> None:
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "sources.list").write_text(f"deb {_mirror()} trixie main\n")
    apt = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=0"]
    for option, value in (
        ("Dir::Etc::sourcelist", "sources.list"), ("Dir::Etc::sourceparts", "none"),
        ("Dir::State::lists", "lists"), ("Dir::Cache", "cache"),
    ):  # fmt: skip
        apt += ["-o", f"{option}={folder / value}"]
    _run([*apt, "update"], folder)
    _run([*apt, "download", *PACKAGES], folder)
    for package in folder.glob("*.deb"):
        _run(["dpkg-deb", "-x", str(package), "root"], folder)


def _mirror() -> str:
    """The Debian mirror this machine uses."""
    sources = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
    text = "\n".join(path.read_text() for path in sources if path.is_file())
    found = re.search(r"(?:^|\s)(\S+://\S+/debian)/?\s", text)
    if found is None:
        raise NotFound("no Debian mirror is configured")
    return found[1]


def _run(command: list[str], folder: Path) -> None:
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotFound(f"{command[0]} {command[-1]}: {error}") from error
