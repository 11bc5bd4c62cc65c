"""agentrun: test LLM agents like code.

    import agentrun

    package = agentrun.compile("specs/triage.yaml")     # compile a spec to a package with a fingerprint
    package = agentrun.load("triage.package.json")      # or load a compiled package
    outcome = agentrun.run(package, "The printer is on fire.", model=model)

Concurrent runs, sessions and events: `Runtime` and `Request`.

For the functions of a spec: `ToolError` and `progress` in tools; in hooks `HookQuestion` and the answers `Continue`,
`Deny`, `Modify` and `Inject`.

Names are imported when they are first used, so that `import agentrun` is fast.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know this name; the import of `typing` would take longer than all of this
if TYPE_CHECKING:
    from typing import Any

    from agentrun.compiler.compile import compile, load
    from agentrun.compiler.package_file import PackageFile
    from agentrun.core.facts import Continue, Deny, Inject, Modify
    from agentrun.core.outcome import Outcome
    from agentrun.engine.api import audit, resume, run
    from agentrun.engine.handle import RunHandle
    from agentrun.engine.hooks import HookQuestion
    from agentrun.engine.request import Request
    from agentrun.engine.runtime import Runtime
    from agentrun.errors import AgentrunError, SpecError, ToolError
    from agentrun.tools.progress import progress

__all__ = [
    "AgentrunError",
    "Continue",
    "Deny",
    "HookQuestion",
    "Inject",
    "Modify",
    "Outcome",
    "PackageFile",
    "Request",
    "RunHandle",
    "Runtime",
    "SpecError",
    "ToolError",
    "audit",
    "compile",
    "load",
    "progress",
    "resume",
    "run",
]

_NAMES_BY_MODULE = {
    "agentrun.compiler.compile": ("compile", "load"),
    "agentrun.compiler.package_file": ("PackageFile",),
    "agentrun.core.facts": ("Continue", "Deny", "Inject", "Modify"),
    "agentrun.core.outcome": ("Outcome",),
    "agentrun.engine.api": ("audit", "resume", "run"),
    "agentrun.engine.handle": ("RunHandle",),
    "agentrun.engine.hooks": ("HookQuestion",),
    "agentrun.engine.request": ("Request",),
    "agentrun.engine.runtime": ("Runtime",),
    "agentrun.errors": ("AgentrunError", "SpecError", "ToolError"),
    "agentrun.tools.progress": ("progress",),
}
_HOMES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'agentrun' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
