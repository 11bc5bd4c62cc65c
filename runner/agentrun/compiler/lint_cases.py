"""What must hold of cases before they run: among themselves, and between them and the spec beside them.

Rule 1  A name is one of the agent as the case runs it, with its profile. What cases have in common is wrong only if it
        is wrong for every one of them.
Rule 2  A spec that cannot be read is told with itself: of its cases only what needs no spec is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from os.path import isfile, join

import msgspec
from msgspec import UNSET

from agentrun.compiler.case_names import ASKING_STAGES, Names
from agentrun.compiler.conditions import known_names
from agentrun.compiler.lint_case_steps import Path
from agentrun.compiler.lint_claims import ClaimLint
from agentrun.compiler.lint_overlays import check_fault, check_stubs
from agentrun.compiler.negations import positive
from agentrun.compiler.quantities import milliseconds
from agentrun.compiler.resolve import Spec, read_spec
from agentrun.compiler.targets import meet
from agentrun.spec.problems import Problem, did_you_mean, quoted
from agentrun.spec.tree import Mapping, Scalar, Sequence, at, place_of, plain
from agentrun.spec.v1.assertions import Assertion, JournalSnapshot
from agentrun.spec.v1.cases import Case, ClockSetting, Defaults, Turn
from agentrun.spec.v1.tools import AgentTool


def lint_cases(root: Mapping, cases: list[Case], spec: Spec | None) -> Iterator[Problem]:
    """Everything wrong with the cases of a file that its schema takes."""
    return _Lint(root, cases, spec).problems()


def lint_names(root: Mapping, cases: list[Case]) -> Iterator[Problem]:
    """Names that are used twice: all that matters to whoever looks for one case and does not judge it."""
    first: dict[str, int] = {}
    for index, case in enumerate(cases):
        if first.setdefault(case.name, index) != index:
            place = place_of(root, ["cases", index, "name"])
            before = place_of(root, ["cases", first[case.name], "name"])
            message = f"{quoted(case.name)} is used twice; the first is at {before}"
            yield Problem(place, "spec.duplicate_name", message, "give one of them another name")


class _Lint:
    def __init__(self, root: Mapping, cases: list[Case], spec: Spec | None) -> None:
        self._root = root
        self._cases = cases
        self._spec = spec
        node = at(root, ["defaults"])
        self._defaults = Defaults() if node is None else msgspec.convert(positive(plain(node)), Defaults)
        self._claims = ClaimLint(root, None if spec is None else spec.project)
        self._names: dict[str | None, Names | None] = {}

    def problems(self) -> Iterator[Problem]:
        yield from self._common()
        yield from lint_names(self._root, self._cases)
        for index, case in enumerate(self._cases):
            yield from self._case(["cases", index], case)

    def _names_of(self, case: Case) -> Names | None:
        """What there is in the agent as a case runs it."""
        spec, profile = self._spec, case.profile
        if spec is None or (profile is not UNSET and profile not in spec.agent.profiles):
            return None
        key = None if profile is UNSET else profile
        if key not in self._names:
            with_profile = spec if key is None else read_spec(spec.path, key).spec
            self._names[key] = None if with_profile is None else Names(with_profile)
        return self._names[key]

    def _common(self) -> Iterator[Problem]:
        """What is wrong with the defaults, whichever case takes them."""
        if "defaults" not in self._root.entries:
            return
        found = [
            {(each.place, each.message): each for each in self._part(["defaults"], self._defaults, names)}
            for names in dict.fromkeys(map(self._names_of, self._cases))
        ]
        yield from (problem for key, problem in found[0].items() if all(key in others for others in found[1:]))

    def _case(self, path: Path, case: Case) -> Iterator[Problem]:
        names = self._names_of(case)
        yield from self._part(path, _own(self._root, path, case, self._defaults), names)
        if case.input is not UNSET and case.turns is not UNSET:
            message = "a case has either `input` or `turns`"
            hint = "make the input the first of the turns"
            yield Problem(place_of(self._root, [*path, "turns"], key=True), "spec.case", message, hint)
        yield from self._snapshots(path, case)
        yield from self._cassette(path, case)
        for number, turn in enumerate(case.turns if isinstance(case.turns, list) else ()):
            for index, claim in enumerate(turn.claims if isinstance(turn, Turn) else ()):
                yield from self._of_turn([*path, "turns", number, "assert", index], claim, names)

    def _of_turn(self, path: Path, claim: Assertion, names: Names | None) -> Iterator[Problem]:
        if isinstance(claim, JournalSnapshot):
            message = "a snapshot is one of the whole conversation"
            yield Problem(place_of(self._root, path), "spec.claim", message, "move it to the `assert` of the case")
        else:
            yield from self._claims.problems(path, claim, names)

    def _snapshots(self, path: Path, case: Case) -> Iterator[Problem]:
        given = [index for index, claim in enumerate(case.claims) if isinstance(claim, JournalSnapshot)]
        before = len(self._defaults.claims)
        for index in given[1:]:
            if index >= before:
                place = place_of(self._root, [*path, "assert", index - before])
                where = "in `defaults`" if given[0] < before else "above"
                yield Problem(place, "spec.claim", f"the case has its snapshot already, {where}", "remove one of them")

    def _cassette(self, path: Path, case: Case) -> Iterator[Problem]:
        if self._spec is None or case.cassette is UNSET or case.cassette in [each.name for each in self._cases]:
            return
        project, name = self._spec.project, self._spec.agent.name
        shown = join(project.cassettes, name, f"{case.cassette}.yaml")
        if not isfile(join(project.root, shown)):
            message = f"there is neither a case {quoted(case.cassette)} nor a recording {quoted(shown)}"
            hint = (
                did_you_mean(case.cassette, [each.name for each in self._cases])
                or "record it: agentrun test --record new"
            )
            yield Problem(place_of(self._root, [*path, "cassette"]), "spec.no_cassette", message, hint, "warning")

    def _part(self, path: Path, part: Defaults, names: Names | None) -> Iterator[Problem]:
        """What a case and the defaults have alike."""
        yield from self._clock(path, part)
        yield from self._step(path, part, names)
        yield from self._tags(path)
        for index, claim in enumerate(part.claims):
            yield from self._claims.problems([*path, "assert", index], claim, names)
        for target, stubs in part.stubs.items():
            yield from check_stubs(self._root, [*path, "stubs", target], target, stubs, names)
        for index, fault in enumerate(part.faults):
            yield from check_fault(self._root, [*path, "faults", index], fault, names)
        if self._spec is not None:
            yield from self._settings(path, part, self._spec)
        if names is not None:
            yield from self._approvals(path, part, names)

    def _clock(self, path: Path, part: Defaults) -> Iterator[Problem]:
        if part.clock.start is UNSET:
            return
        try:
            datetime.fromisoformat(part.clock.start)
        except ValueError:
            place = place_of(self._root, [*path, "clock", "start"])
            message = f"{quoted(part.clock.start)} is no date and time that there is"
            yield Problem(place, "spec.case", message, "for example 2026-01-31T09:00:00Z")

    def _step(self, path: Path, part: Defaults, names: Names | None) -> Iterator[Problem]:
        """A replay in which every call is late asks the model what no recording has: that is made in real time."""
        if part.clock.step is UNSET or names is None:
            return
        agent = names.spec.agent
        for name, tool in agent.tools.items():
            limit = agent.limits.tool_timeout if tool.timeout is UNSET else tool.timeout
            if not isinstance(tool, AgentTool) and milliseconds(part.clock.step) > milliseconds(limit):
                place = place_of(self._root, [*path, "clock", "step"])
                message = f"{quoted(name)} may take {limit}: with this step each of its calls is too late"
                hint = f"at most {limit}, or a longer `timeout` for the tool"
                yield Problem(place, "spec.case", message, hint, "warning")
                return

    def _tags(self, path: Path) -> Iterator[Problem]:
        node = at(self._root, [*path, "tags"])
        seen: set[str] = set()
        for item in node.items if isinstance(node, Sequence) else ():
            if isinstance(item, Scalar) and item.text in seen:
                yield Problem(item.place, "spec.case", f"the tag {quoted(item.text)} is given twice", "remove one")
            seen.add(item.text if isinstance(item, Scalar) else "")

    def _settings(self, path: Path, part: Defaults, spec: Spec) -> Iterator[Problem]:
        agent = spec.agent
        for param in part.params:
            if param not in agent.params:
                place = place_of(self._root, [*path, "params", param], key=True)
                hint = did_you_mean(param, agent.params) or known_names(agent.params)
                yield Problem(place, "spec.unknown_param", f"param {quoted(param)} is not declared", hint)
        if part.profile is not UNSET and part.profile not in agent.profiles:
            place = place_of(self._root, [*path, "profile"])
            hint = did_you_mean(part.profile, agent.profiles) or known_names(agent.profiles)
            yield Problem(place, "spec.unknown_profile", f"profile {quoted(part.profile)} is not declared", hint)

    def _approvals(self, path: Path, part: Defaults, names: Names) -> Iterator[Problem]:
        """A question of a sub-agent is answered by the name of its own tool."""
        for target in part.approvals:
            if names.anywhere(partial(_may_ask, target), unknown=False):
                continue
            place = place_of(self._root, [*path, "approvals", target], key=True)
            known = [*names.tools, *names.spec.agent.sinks, *ASKING_STAGES]
            hint = did_you_mean(target, known) or known_names(known)
            inner = target.rpartition("/")[2]
            if inner != target and names.has_tool(target):
                hint = f"a question is answered by the name that the sub-agent gives its tool: {quoted(inner)}"
            yield Problem(place, "spec.unknown_tool", f"tool {quoted(target)} is not declared", hint)


def _may_ask(target: str, names: Names) -> bool:
    """Whether an agent itself may ask about a target."""
    return names.has_own(target) or any(meet(target, each) for each in (*ASKING_STAGES, *names.spec.agent.sinks))


def _own(root: Mapping, path: Path, case: Case, defaults: Defaults) -> Defaults:
    """What stands in a case itself."""

    def written(key: str) -> Mapping | None:
        node = at(root, [*path, key])
        return node if isinstance(node, Mapping) else None

    params, approvals, stubs, clock = map(written, ("params", "approvals", "stubs", "clock"))
    return Defaults(
        params={name: value for name, value in case.params.items() if params and name in params.entries},
        profile=case.profile if at(root, [*path, "profile"]) is not None else UNSET,
        approvals={name: each for name, each in case.approvals.items() if approvals and name in approvals.entries},
        stubs={name: each for name, each in case.stubs.items() if stubs and name in stubs.entries},
        clock=ClockSetting(
            start=case.clock.start if clock and "start" in clock.entries else UNSET,
            step=case.clock.step if clock and "step" in clock.entries else UNSET,
        ),
        faults=case.faults[len(defaults.faults) :],
        claims=case.claims[len(defaults.claims) :],
    )
