"""The other documents people write: shared tools, policies and budgets."""

from typing import Literal

from msgspec import Struct

from agentrun.spec.v1.budgets import Budgets
from agentrun.spec.v1.policy import Policy
from agentrun.spec.v1.tools import Tool
from agentrun.spec.v1.values import Name


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
