"""Handmade evidence, and the failures of assertions about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from agentrun.compiler.spec_reader import Spec
from agentrun.core.trajectory import ObservedApproval, ObservedCall, ObservedRuling
from agentrun.spec.problems import Source
from agentrun.spec.project import Project
from agentrun.spec.v1.assertions import split_part_negations
from agentrun.spec.v1.cases import CaseDefaults
from agentrun.testing.suite.assertions import check_assertion
from agentrun.testing.suite.evidence import Evidence
from agentrun.testing.suite.replay import CompiledAgent
from agentrun.testing.suite.verdict import CaseFailure


def call(tool: str, args: dict[str, Any] | None = None, status: str = "ok", result: str = "") -> ObservedCall:
    return ObservedCall(id="c1.0", tool=tool, args={} if args is None else args, status=status, result=result, turn=1)


def ruling(target: str, ruled: str, *rules: str, stage: str = "tool_call") -> ObservedRuling:
    return ObservedRuling(subject="c1.0", target=target, stage=stage, ruling=ruled, rules=rules, reason=None)


def approval(target: str, answer: str) -> ObservedApproval:
    return ObservedApproval(subject="c1.0", target=target, answer=answer, by="a person")


def make_evidence(output: str | None = "Refunded: 39.90 to Ada.", **changes: Any) -> Evidence:
    """A run with an answer, calls, rulings and an approval."""
    given: dict[str, Any] = {
        "output": output,
        "outcome": "completed",
        "params": {"order": "1042"},
        "calls": (
            call("look", {"id": "1042"}),
            call("refund", {"amount": 39.9, "why": "Late", "to": {"name": "Ada", "tags": ["new", 1]}}),
            call("refund", {"amount": 120}, "tool.denied"),
            call("read", {"message": "x"}),
            call("read/find", {"words": "x"}),
        ),
        "rulings": (
            ruling("look", "allow", "reads"),
            ruling("refund", "ask", "big", "always"),
            ruling("output", "allow", stage="output"),
            ruling("read/find", "deny", "inner"),
        ),
        "approvals": (approval("refund", "denied"), approval("read/find", "approved")),
        "tokens": 2000,
        "cost": 1089,
        "turns": 4,
        "time": 1500,
        "runs": (),
    }
    return Evidence(**{**given, **changes})


def failed_assertion(written: dict[str, Any], evidence: Evidence, root: Path = Path("/nowhere")) -> CaseFailure | None:
    """The failure about an assertion as people write it. `root`: the project."""
    assertion = msgspec.convert(split_part_negations({"assert": [written]}), CaseDefaults).assertions[0]
    project = Project(root)
    spec: Any = msgspec.structs.replace(_SPEC, project=project)
    return check_assertion(assertion, evidence, CompiledAgent(spec, None))  # type: ignore[arg-type]  # no assertion looks at the package


def negated(written: dict[str, Any]) -> dict[str, Any]:
    return {**written, "type": f"not-{written['type']}"}


_NOTHING: Any = None
_SPEC = Spec(Source(Path("/nowhere/a.yaml"), "a.yaml", ""), Project(Path("/nowhere")), _NOTHING, _NOTHING)
