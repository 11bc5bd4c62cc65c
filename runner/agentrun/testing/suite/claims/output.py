"""Claims about the answer.

Rule 1  Texts are compared as they are, with every space. Upper and lower case are the same only where the type says so.
Rule 2  JSON is the whole answer or none of it, read as strictly as an output contract is.
Rule 3  Values of JSON are equal as in JSON: 1 is 1.0, true is not 1, the order of keys is nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

import re2

from agentrun.canon import compact
from agentrun.core.output import Broken, Kept
from agentrun.core.schemas import validator
from agentrun.spec.v1 import assertions as types
from agentrun.testing.suite.claims.finding import Finding, in_json, listed, no_answer
from agentrun.testing.suite.evidence import Evidence, json_of

MOST_ERRORS = 5
"""Errors of a schema that are told."""


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal in JSON."""
    match one, other:
        case (bool(), _) | (_, bool()):
            return one is other
        case dict(), dict():
            return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
        case list(), list():
            return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def equals(claim: types.Equals, evidence: Evidence) -> Finding:
    answer, wanted = evidence.output, claim.value
    if answer is None:
        return Finding(False, lambda: no_answer(evidence))
    if isinstance(wanted, str):
        return Finding(answer == wanted, lambda: _unequal_texts(evidence, answer, wanted))
    found = json_of(answer)
    if not isinstance(found, Kept):
        return Finding(False, lambda: no_json(evidence))
    holds = same(found.value, wanted)
    shown = f"the answer is {'' if holds else 'not '}"
    return Finding(holds, lambda: f"{shown}{evidence.quoted(in_json(wanted))}{_it_is(evidence, holds)}")


def _unequal_texts(evidence: Evidence, answer: str, wanted: str) -> str:
    if answer == wanted:
        return f"the answer is {evidence.in_quotes(wanted)}"
    if answer.strip() == wanted.strip():
        return f"the answer differs only in the spaces or line ends around it{_it_is(evidence)}"
    return f"the answer is not {evidence.in_quotes(wanted)}{_it_is(evidence)}"


def _it_is(evidence: Evidence, holds: bool = False) -> str:
    return "" if holds else f"; it is {evidence.in_quotes(evidence.output or '')}"


# --- texts in it ------------------------------------------------------------------------------------------------------


def contains(claim: types.Contains, evidence: Evidence) -> Finding:
    return _containing(evidence, [claim.value], all)


def contains_all(claim: types.ContainsAll, evidence: Evidence) -> Finding:
    return _containing(evidence, claim.value, all)


def contains_any(claim: types.ContainsAny, evidence: Evidence) -> Finding:
    return _containing(evidence, claim.value, any)


def icontains(claim: types.IContains, evidence: Evidence) -> Finding:
    return _containing(evidence, [claim.value], all, str.casefold)


def icontains_all(claim: types.IContainsAll, evidence: Evidence) -> Finding:
    return _containing(evidence, claim.value, all, str.casefold)


def icontains_any(claim: types.IContainsAny, evidence: Evidence) -> Finding:
    return _containing(evidence, claim.value, any, str.casefold)


def _containing(
    evidence: Evidence,
    texts: Sequence[str],
    enough: Callable[[Sequence[bool]], bool],
    read: Callable[[str], str] = lambda text: text,
) -> Finding:
    """Whether all, or any, of some texts are in the answer."""
    if evidence.output is None:
        return Finding(False, lambda: no_answer(evidence))
    answer = read(evidence.output)
    found = [read(text) in answer for text in texts]
    holds = enough(found)

    def says() -> str:
        named = [text for text, is_there in zip(texts, found, strict=True) if is_there is holds]
        shown = ", ".join(evidence.in_quotes(text) for text in named[:5])
        more = f" and {len(named) - 5} more" if len(named) > 5 else ""
        return f"the answer {'contains' if holds else 'does not contain'} {shown}{more}{_it_is(evidence)}"

    return Finding(holds, says)


def starts_with(claim: types.StartsWith, evidence: Evidence) -> Finding:
    if evidence.output is None:
        return Finding(False, lambda: no_answer(evidence))
    holds = evidence.output.startswith(claim.value)
    does = "begins" if holds else "does not begin"
    return Finding(holds, lambda: f"the answer {does} with {evidence.in_quotes(claim.value)}{_it_is(evidence)}")


@lru_cache(maxsize=512)
def expression(pattern: str) -> Any:
    """A regular expression; the file of cases was checked before, so it is one."""
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)  # type: ignore[no-untyped-call]  # re2 has no types


def regex(claim: types.Regex, evidence: Evidence) -> Finding:
    if evidence.output is None:
        return Finding(False, lambda: no_answer(evidence))
    found = expression(claim.value).search(evidence.output)

    def says() -> str:
        pattern = evidence.quoted(claim.value)
        if found is None:
            return f"nothing in the answer matches {pattern}{_it_is(evidence)}"
        return f"{evidence.in_quotes(found[0])} in the answer matches {pattern}"

    return Finding(found is not None, says)


# --- the whole as JSON ------------------------------------------------------------------------------------------------


def is_json(claim: types.IsJson, evidence: Evidence) -> Finding:
    return _fitting(evidence, claim.value if isinstance(claim.value, dict) else None)


def fits_schema(claim: types.FitsSchema, evidence: Evidence) -> Finding:
    return _fitting(evidence, claim.value)


def _fitting(evidence: Evidence, schema: dict[str, Any] | None) -> Finding:
    found = json_of(evidence.output)
    if not isinstance(found, Kept):
        return Finding(False, lambda: no_json(evidence))
    if schema is None:
        return Finding(True, lambda: f"the answer is JSON: {evidence.quoted(evidence.output or '')}")
    judge = validator(compact(schema))
    if judge.is_valid(found.value):
        return Finding(True, lambda: f"the answer fits the schema{_it_is(evidence)}")
    return Finding(False, lambda: _misfits(evidence, judge, found.value))


def _misfits(evidence: Evidence, judge: Any, value: Any) -> str:
    errors = [
        evidence.quoted(f"{_pointer(error.instance_path)}: {error.message}", 200)
        for error in islice(judge.iter_errors(value), MOST_ERRORS + 1)
    ]
    more = ["…"] if len(errors) > MOST_ERRORS else []
    return f"the answer does not fit the schema{_it_is(evidence)}\n{listed([*sorted(errors[:MOST_ERRORS]), *more])}"


def _pointer(path: Sequence[str | int]) -> str:
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path) or "the whole"


def no_json(evidence: Evidence) -> str:
    """Why there is no JSON."""
    found = json_of(evidence.output)
    return f"{evidence.quoted(found.errors[0])}{_it_is(evidence)}" if isinstance(found, Broken) else no_answer(evidence)
