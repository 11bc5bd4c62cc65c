"""Preview a recording: the tools that may run, who answers approvals, and the estimated cost.

Any tool of the package and its sub-agents may run, unless the case has a stub for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import get_args

from msgspec import UNSET, Struct

from agentrun.cassette.file import load_cassette
from agentrun.compiler.cases import cassette_owner
from agentrun.core.package import Package, argument_schemas, find_tool, tool_effect
from agentrun.core.package_tools import ToolEffect
from agentrun.engine.spending import Spending, sum_spending
from agentrun.engine.world import iterate_packages
from agentrun.errors import AgentrunError
from agentrun.spec.project import Project
from agentrun.spec.safe_text import plural, short_text
from agentrun.spec.v1.cases import Case
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.replay import CompiledAgents
from agentrun.testing.suite.stubs_and_faults import CaseStubs

MAX_LISTED_TOOLS = 20
_HARM: tuple[ToolEffect, ...] = get_args(ToolEffect)
_KEEPS_NEW = "only calls without a recorded result"


class PlannedCassette(Struct, frozen=True):
    package: Package
    case: Case
    cassette: Path
    project: Project


class ApprovalSources(Struct, frozen=True, kw_only=True):
    """Who answers approvals besides the case."""

    option: str | None = None
    """The option that answers, such as `--approve all`."""
    is_file: bool = False
    has_person: bool = False


class RecordingPreview(Struct, frozen=True, kw_only=True):
    tools: dict[str, ToolEffect]
    """The tools that may run, by name; those of a sub-agent as `read/search`."""
    kept_results: str
    """Which recorded results are kept, in words. Empty: none."""
    asks_approval: bool
    answered_by: tuple[str, ...]
    """Who answers approvals, in order."""
    files: tuple[str, ...]
    """The files among them."""
    known_spending: Spending
    without_cassette: int
    total: int
    short: tuple[str, ...] = ()
    """Credentials whose values are too short to hide."""

    @property
    def needs_consent(self) -> bool:
        return bool(self.harmful or self.files)

    @property
    def harmful(self) -> tuple[str, ...]:
        """The tools that may run and do not have `effect: read`."""
        return tuple(name for name, effect in self.tools.items() if effect != "read")

    def reason(self) -> str:
        if self.harmful:
            return f"this recording may run tools without `effect: read` ({_join_names(self.harmful)})"
        return f"a file answers approvals of this recording ({_join_names(self.files)})"

    def lines(self) -> list[str]:
        """At most five lines."""
        kept = f" ({self.kept_results})" if self.kept_results and self.tools else ""
        once = [name for name, effect in self.tools.items() if effect == "at_most_once"]
        return [
            f"tools that may run: {_join_names(self.tools) or 'none'}{kept}",
            *([f"of these at_most_once: {_join_names(once)}"] if once else []),
            f"approvals answered by: {self._approvals_text()}",
            f"estimated cost: {self._cost_text()}",
            *([f"too short to be redacted: {_join_names(self.short)}"] if self.short else []),
        ]

    def _approvals_text(self) -> str:
        if not self.asks_approval:
            return "no one (the policy asks for no approval)"
        return ", then ".join(self.answered_by) or "no one (calls that need approval are denied)"

    def _cost_text(self) -> str:
        if self.without_cassette == self.total:
            return "unknown, because this is the first recording"
        more = f"; unknown for {plural(self.without_cassette, 'other case')}" if self.without_cassette else ""
        return f"about {self.known_spending}, as in the last recording{more}"


def preview_recording(plans: Sequence[PlannedCassette], how: str, answers: ApprovalSources) -> RecordingPreview:
    """Preview the recording of these cassettes. `how`: new, all or from:N."""
    from agentrun.engine.live_providers import live_settings, short_secrets  # late: the import takes a second

    tools: dict[str, ToolEffect] = {}
    short: set[str] = set()
    known, unknown = Spending(), 0
    for plan in plans:
        for name, effect in real_tools(plan.package, CaseStubs(plan.case.stubs)):
            tools[name] = max(effect, tools.get(name, effect), key=_HARM.index)
        variables = live_settings(plan.package, plan.project.root).variables()
        short.update(short_secrets(plan.package, variables, plan.project.secrets))
        spent = _recorded_spending(plan)
        known, unknown = known + (spent or Spending()), unknown + (spent is None)
    by_case = tuple(f"case {plan.case.name}" for plan in plans if _answers_approvals(plan.case))
    by_case = by_case if len(by_case) <= 1 else (f"{len(by_case)} cases",)
    by_option = () if answers.option is None else (answers.option,)
    keeps = unknown < len(plans) and how not in ("all", "from:1")
    kept = _KEEPS_NEW if how == "new" else f"from interaction {how.removeprefix('from:')} on"
    return RecordingPreview(
        tools=dict(sorted(tools.items())),
        kept_results=kept if keeps else "",
        asks_approval=any(_asks_approval(each) for plan in plans for each in iterate_packages(plan.package)),
        answered_by=(
            *by_option,
            *by_case,
            *(["the cassette"] if keeps else []),
            *(["you"] if answers.has_person else []),
        ),
        files=(*by_case, *(by_option if answers.is_file else ())),
        known_spending=known,
        without_cassette=unknown,
        total=len(plans),
        short=tuple(sorted(short)),
    )


def plan_cassettes(cases: Iterable[LocatedCase]) -> list[PlannedCassette]:
    """The cassettes to record for these cases. An invalid spec is reported later, when its case runs."""
    agents, plans = CompiledAgents(), []
    for located in cases:
        if located.case.skip is not UNSET:
            continue
        try:
            if cassette_owner(located.case, located.file) != located.case.name:
                continue
            agent = agents.for_case(located)
        except AgentrunError:
            continue
        plans.append(PlannedCassette(agent.file.agent, located.case, agent.cassette_path(located), agent.spec.project))
    return plans


def real_tools(package: Package, stubs: CaseStubs, above: str = "") -> Iterator[tuple[str, ToolEffect]]:
    for name in argument_schemas(package.tools):
        tool, full = find_tool(package, name), f"{above}{name}"
        if tool is None or stubs.find_target(full) is not None:
            continue
        if name in package.agents:
            yield from real_tools(package.agents[name], stubs, f"{full}/")
        else:
            yield full, tool_effect(tool, name)


def _recorded_spending(plan: PlannedCassette) -> Spending | None:
    """The spending of the existing cassette. None: there is no readable cassette."""
    try:
        return sum_spending(plan.package, load_cassette(plan.cassette).interactions)
    except (AgentrunError, OSError):
        return None


def _answers_approvals(case: Case) -> bool:
    """Whether a case answers any approval. `unavailable` is not an answer."""
    answers = [*case.approvals.values(), *(each.inject.answer for each in case.faults)]
    return any(answer in ("approved", "approved_for_session", "denied") for answer in answers)


def _asks_approval(package: Package) -> bool:
    policy = package.policy
    return policy.default == "ask" or any(rule.ruling == "ask" for rule in policy.rules)


def _join_names(names: Iterable[str]) -> str:
    texts = [short_text(name) for name in names]
    more = f" and {len(texts) - MAX_LISTED_TOOLS} more" if len(texts) > MAX_LISTED_TOOLS else ""
    return ", ".join(texts[:MAX_LISTED_TOOLS]) + more
