"""Which values of the environment a run does not show."""

import pytest
from msgspec.structs import replace

from agentrun.core.package import Package
from agentrun.engine.live_providers import NOT_SECRET_VARIABLES, known_secrets

from ..packages import package
from ..tools.test_shell import tool


def with_command(*names: str) -> Package:
    """An agent with a command that sees these variables."""
    run = tool("run", env={name: f"${{{name}}}" for name in names})
    return replace(package(), tools={"run": run})


@pytest.mark.parametrize("name", [*NOT_SECRET_VARIABLES, "LC_ALL", "XDG_CACHE_HOME"])
def test_what_every_machine_has_is_no_secret(name: str) -> None:
    """A model that reads a path of a command must be able to name it in the next call."""
    found = known_secrets(with_command(name, "BRANCH_OFFICE"), {name: "/srv/alice/x", "BRANCH_OFFICE": "a-long-word"})
    assert [(each, value.reveal()) for each, value in found] == [("BRANCH_OFFICE", "a-long-word")]


def test_a_key_in_it_is_one() -> None:
    key = "sk-proj-abcdefghij0123456789ABCDEFGHIJ"
    found = known_secrets(with_command("PATH"), {"PATH": f"/bin:/opt/{key}"})
    assert [value.reveal() for _, value in found] == [key]
