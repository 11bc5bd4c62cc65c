"""A package as one file: canonical JSON with a fingerprint for the whole and one for each section.

Rule 1  The file is exactly the canonical form of what it holds; one byte more or less and it is refused.
Rule 2  Everything is verified before anything is used: size, form, version, fingerprints, types — in this order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from agentrun.canon import canonical, fingerprint
from agentrun.core.package import Package
from agentrun.errors import PackageError

FORMAT = "1"
LARGEST = 16 * 1024 * 1024


class PackageFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A package with its fingerprints."""

    agentrun_package: str = FORMAT
    """The version of the file's format."""
    fingerprint: str
    """`sha256:` and the hash of `agent` in canonical form."""
    sections: dict[str, str]
    """The same for each section of `agent`."""
    agent: Package
    """The compiled agent."""


def sealed(package: Package) -> PackageFile:
    """A package with its fingerprints."""
    plain: dict[str, Any] = msgspec.to_builtins(package)
    sections = {name: fingerprint(section) for name, section in plain.items()}
    return PackageFile(fingerprint=fingerprint(plain), sections=sections, agent=package)


def package_bytes(file: PackageFile) -> bytes:
    """The file's content: canonical JSON and a newline."""
    return canonical(file) + b"\n"


def read_package(path: Path) -> PackageFile:
    """A package from a file, verified."""
    try:
        with path.open("rb") as stream:
            data = stream.read(LARGEST + 1)
    except OSError as error:
        raise _invalid(path, f"cannot be read: {error.strerror}") from None
    return parse_package(data, path)


def parse_package(data: bytes, path: Path) -> PackageFile:
    """A package from bytes, verified. `path` is for messages."""
    if len(data) > LARGEST:
        raise _invalid(path, f"is larger than {LARGEST // 1024 // 1024} MiB")
    try:
        plain = msgspec.json.decode(data)
        again = canonical(plain) + b"\n"
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError):
        raise _invalid(path, "is not JSON") from None
    if not isinstance(plain, dict) or "agentrun_package" not in plain:
        raise _invalid(path, "is not a package")
    if plain["agentrun_package"] != FORMAT:
        raise _invalid(path, "is of another version", "compile it again with this agentrun")
    if again != data:
        raise _invalid(path, "is not in canonical form", "compile it again; a package is never edited by hand")
    _verify(plain, path)
    try:
        return msgspec.convert(plain, PackageFile)
    except msgspec.ValidationError as error:
        raise _invalid(path, f"has a wrong shape: {error}") from None


def _verify(plain: dict[str, Any], path: Path) -> None:
    agent, sections = plain.get("agent"), plain.get("sections")
    if not isinstance(agent, dict) or not isinstance(sections, dict):
        raise _invalid(path, "has no agent or no sections")
    found = fingerprint(agent)
    wrong = sorted(name for name in {*agent, *sections} if fingerprint(agent.get(name)) != sections.get(name))
    if found != plain.get("fingerprint") or wrong:
        raise PackageError(
            "package.fingerprint_mismatch",
            f"{path.name} is not what its fingerprint says",
            hint="it was changed after it was compiled; compile it again",
            fields={"pinned": plain.get("fingerprint"), "found": found, "sections": wrong},
        )


def _invalid(path: Path, message: str, hint: str | None = None) -> PackageError:
    return PackageError("package.invalid", f"{path.name} {message}", hint=hint, fields={"place": path.name})
