"""Which values of environment variables a run treats as secrets."""

import pytest
from msgspec.structs import replace

from agentrun.core.package import Package
from agentrun.engine.live_providers import NOT_SECRET_VARIABLES, known_secrets

from ..packages import package
from ..tools.test_shell import tool


def agent_with_env(*names: str) -> Package:
    """An agent with a command that sees these variables."""
    run = tool("run", env={name: f"${{{name}}}" for name in names})
    return replace(package(), tools={"run": run})


@pytest.mark.parametrize("name", [*NOT_SECRET_VARIABLES, "LC_ALL", "XDG_CACHE_HOME"])
def test_common_system_variables_are_no_secrets(name: str) -> None:
    """A model that reads a path of a command must be able to name it in the next call."""
    found = known_secrets(agent_with_env(name, "BRANCH_OFFICE"), {name: "/srv/alice/x", "BRANCH_OFFICE": "a-long-word"})
    assert [(each, value.reveal()) for each, value in found] == [("BRANCH_OFFICE", "a-long-word")]


def test_key_inside_a_system_variable_is_a_secret() -> None:
    key = "sk-proj-abcdefghij0123456789ABCDEFGHIJ"
    found = known_secrets(agent_with_env("PATH"), {"PATH": f"/bin:/opt/{key}"})
    assert [value.reveal() for _, value in found] == [key]
