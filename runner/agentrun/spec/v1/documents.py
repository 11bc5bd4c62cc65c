"""The other documents people write: shared tools, policies and budgets, and cases."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from agentrun.spec.v1.budgets import Budgets
from agentrun.spec.v1.policy import Policy, Target
from agentrun.spec.v1.tools import Tool
from agentrun.spec.v1.values import Name, ParamName, TemplateText


class ToolsFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Tools shared between agents."""

    agentrun: Literal["1"]
    """The version of the spec language, in quotes."""
    tools: dict[Name, Tool]
    """The tools by name."""


class PolicyFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Rules shared between agents."""

    agentrun: Literal["1"]
    """The version of the spec language, in quotes."""
    policy: Policy
    """The rules, and the default if this file is to set it."""


class BudgetsFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Budgets shared between agents."""

    agentrun: Literal["1"]
    """The version of the spec language, in quotes."""
    budgets: Budgets
    """What a run may spend."""


class Case(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One test of an agent."""

    name: Name
    """The case's name; its cassette is cassettes/<spec>/<name>.yaml."""
    input: TemplateText | UnsetType = UNSET
    """The message. Absent: the agent's own `input`."""
    params: dict[ParamName, Any] = {}
    """Values for the agent's params."""
    profile: Name | UnsetType = UNSET
    """The profile to use."""
    approvals: dict[Target, Literal["approved", "denied"]] = {}
    """Answers to approvals, given in advance: by tool, by sink, or by stage (`input`, `output`)."""


class CasesFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The cases of the agent whose spec stands beside this file."""

    agentrun: Literal["1"]
    """The version of the spec language, in quotes."""
    cases: Annotated[list[Case], Meta(min_length=1, max_length=10_000)]
    """The cases; each has its own name."""
