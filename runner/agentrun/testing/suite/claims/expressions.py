"""Claims that are expressions: JMESPath over the answer, CEL over all that is known of a run."""

from __future__ import annotations

from typing import Any

from msgspec import UnsetType
from msgspec.structs import asdict

from agentrun.compiler.claim_conditions import Undecided, truth
from agentrun.compiler.foreign import exact
from agentrun.compiler.picks import Unusable, picked
from agentrun.core.output import Kept
from agentrun.spec.v1 import assertions as types
from agentrun.testing.suite.claims.finding import CannotTell, Finding, in_json, no_answer
from agentrun.testing.suite.claims.output import no_json, same
from agentrun.testing.suite.evidence import Evidence, json_of

_EMPTY: tuple[Any, ...] = (None, False, "", [], {})


def jmespath(claim: types.Jmespath, evidence: Evidence) -> Finding:
    found = json_of(evidence.output)
    if not isinstance(found, Kept):
        return Finding(False, lambda: no_json(evidence))
    try:
        value = picked(claim.value, found.value)
    except Unusable as why:
        message = why.message.replace("the reply", "the answer")
        raise CannotTell(f"{evidence.quoted(claim.value)} cannot be evaluated: {message}") from None
    wanted = claim.expected
    holds = not any(same(value, empty) for empty in _EMPTY) if isinstance(wanted, UnsetType) else same(value, wanted)

    def says() -> str:
        line = f"{evidence.quoted(claim.value)} finds {evidence.quoted(in_json(value))}"
        if holds:
            return line
        return f"{line}, not {'anything' if isinstance(wanted, UnsetType) else evidence.quoted(in_json(wanted))}"

    return Finding(holds, says)


def cel(claim: types.Cel, evidence: Evidence) -> Finding:
    variables = _variables(claim.value, evidence)
    try:
        holds = truth(claim.value, variables)
    except Undecided as why:
        reason = no_answer(evidence) if 'name "output"' in str(why) else str(why)
        raise CannotTell(f"{evidence.quoted(claim.value)} cannot be evaluated: {evidence.quoted(reason)}") from None

    def says() -> str:
        shown = [evidence.quoted(f"  {name}: {in_json(value)}", 200) for name, value in variables.items()]
        return "\n".join([f"{evidence.quoted(claim.value)} is {'true' if holds else 'false'}", *shown])

    return Finding(holds, says)


def _variables(expression: str, evidence: Evidence) -> dict[str, Any]:
    """What an expression may read; only what it names is made."""
    found: dict[str, Any] = {}
    if "output" in expression and evidence.output is not None:
        found["output"] = evidence.output
    if "json" in expression:
        read = json_of(evidence.output)
        found["json"] = exact(read.value) if isinstance(read, Kept) else None
    if "params" in expression:
        found["params"] = exact(evidence.params)
    for name in ("calls", "rulings", "approvals"):
        if name in expression:
            found[name] = [exact(_plain(each)) for each in getattr(evidence, name)]
    if "spend" in expression:
        found["spend"] = {name: getattr(evidence, name) for name in ("tokens", "cost", "turns", "time")}
    if "outcome" in expression:
        found["outcome"] = evidence.outcome
    return found


def _plain(step: Any) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(step).items()}
