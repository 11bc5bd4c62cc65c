"""Whether a pipeline runs us, where nobody looks: nothing goes live, is recorded or accepted there by accident."""

from __future__ import annotations

import os


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")
