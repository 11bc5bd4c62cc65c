"""Package files: canonical JSON with a fingerprint of the whole package and of each section.

Rule 1  A file must be exactly the canonical form of its content, byte by byte.
Rule 2  Everything is verified before it is used, in this order: size, form, version, fingerprints, types.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from agentrun.canonical_json import canonical_json, fingerprint, text_hash
from agentrun.core.package import Package
from agentrun.errors import PackageError
from agentrun.spec.problems import quote_text

PACKAGE_FORMAT = "1"
MAX_PACKAGE_BYTES = 16 * 1024 * 1024


class PackageFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A package with its fingerprints."""

    agentrun_package: str = PACKAGE_FORMAT
    """The version of the file format."""
    fingerprint: str
    """`sha256:` and the hash of the canonical form of `agent`."""
    sections: dict[str, str]
    """The fingerprint of each section of `agent`."""
    agent: Package
    """The compiled agent."""


def seal_package(package: Package) -> PackageFile:
    """Add the fingerprints and sort the mappings, so that a compiled package equals a loaded one."""
    data = canonical_json(package)
    plain = _decode_json(data)
    return PackageFile(
        fingerprint=text_hash(data), sections=_section_fingerprints(plain), agent=msgspec.convert(plain, Package)
    )


def package_bytes(file: PackageFile) -> bytes:
    """Return the content of the file: canonical JSON and a newline."""
    return canonical_json(file) + b"\n"


def read_package(path: Path) -> PackageFile:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_PACKAGE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise _invalid(path, f"cannot be read: {getattr(error, 'strerror', 'not the name of a file')}") from None
    return parse_package(data, path)


def parse_package(data: bytes, path: Path) -> PackageFile:
    """Parse and verify a package. `path`: for messages."""
    if len(data) > MAX_PACKAGE_BYTES:
        raise _invalid(path, f"is larger than {MAX_PACKAGE_BYTES // 1024 // 1024} MiB")
    try:
        return _parse_verified(data, path)
    except RecursionError:
        raise _invalid(path, "is nested too deeply") from None


def _parse_verified(data: bytes, path: Path) -> PackageFile:
    try:
        plain = _decode_json(data)
        again = canonical_json(plain) + b"\n"
    except ValueError:
        raise _invalid(path, "is not JSON") from None
    if not isinstance(plain, dict) or "agentrun_package" not in plain:
        raise _invalid(path, "is not a package")
    if plain["agentrun_package"] != PACKAGE_FORMAT:
        raise _invalid(path, "has another version", "compile it again with this agentrun")
    if again != data:
        raise _invalid(path, "is not in canonical form", "compile it again; a package cannot be edited")
    _verify_fingerprints(plain, path)
    try:
        return msgspec.convert(plain, PackageFile)
    except msgspec.ValidationError as error:
        raise _invalid(path, f"is invalid: {quote_text(str(error), 200)}") from None


def _verify_fingerprints(plain: dict[str, Any], path: Path) -> None:
    agent, sections, pinned = plain.get("agent"), plain.get("sections"), plain.get("fingerprint")
    if not isinstance(agent, dict) or not isinstance(sections, dict) or not isinstance(pinned, str):
        raise _invalid(path, "has no agent, no sections or no fingerprint")
    if not agent.keys() == sections.keys() == set(Package.__struct_fields__):
        raise _invalid(path, "does not have the sections of a package")
    found = fingerprint(agent)
    wrong = sorted(name for name, hashed in _section_fingerprints(agent).items() if hashed != sections[name])
    if found != pinned or wrong:
        raise PackageError(
            "package.fingerprint_mismatch",
            f"{path.name} does not match its fingerprint",
            hint="the file was changed after it was compiled; compile it again",
            fields={"place": path.name, "pinned": pinned[: len(found)], "found": found, "sections": wrong},
        )


def _section_fingerprints(agent: dict[str, Any]) -> dict[str, str]:
    return {name: fingerprint(section) for name, section in agent.items()}


def _decode_json(data: bytes) -> Any:
    """Parse JSON. A whole number that is too large to be exact was written as a double."""
    return json.loads(data.decode(), parse_int=_number)


def _number(text: str) -> int | float:
    number = float(text)
    return int(text) if abs(number) < 2**53 else number


def _invalid(path: Path, message: str, hint: str | None = None) -> PackageError:
    return PackageError("package.invalid", f"{path.name} {message}", hint=hint, fields={"place": path.name})
