"""The compiler as two small functions, for Python users."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentrun.compiler.compile import compiled_or_raise
from agentrun.compiler.fingerprint import PackageFile, read_package


def compile(path: str | Path, *, profile: str | None = None, settings: Sequence[str] = ()) -> PackageFile:
    """Compiles a spec. Raises SpecError with every problem in it."""
    return compiled_or_raise(Path(path), profile, settings)[1]


def load(path: str | Path) -> PackageFile:
    """Loads a compiled package and verifies it. Raises PackageError."""
    return read_package(Path(path))
