"""Which messages and params a run accepts, and the first fact it writes."""

from typing import Any

import pytest

from agentrun.core.facts import RULES_VERSION, EarlierRuns
from agentrun.core.messages import Image, Text, User
from agentrun.core.package import Package
from agentrun.engine.begin import AdmittedRequest, admit, make_run_started
from agentrun.engine.request import Request
from agentrun.engine.world import world_of_run
from agentrun.errors import RequestError

from ..packages import package
from .memory_worlds import Place

PICTURE = Image("image/png", "sha256:0", 1)
PARAMS = {
    "team": {"type": "string", "default": "support"},
    "size": {"type": "integer", "minimum": 1},
}


def agent(**changes: Any) -> Package:
    return package(
        **{"params": PARAMS, "instructions": ["A {{ size }}", "B {{ team }}"], "input": "C {{ team }}", **changes}
    )


def admission_error(package: Package, message: str | None, params: dict[str, Any]) -> RequestError:
    with pytest.raises(RequestError) as caught:
        admit(package, message, params)
    assert (caught.value.code, caught.value.exit_code) == ("input.rejected", 2)
    return caught.value


def test_admit_renders_templates_but_not_params_or_messages() -> None:
    values = {"size": 3, "team": "support"}
    assert admit(agent(), None, {"size": 3}) == AdmittedRequest(values, "A 3\n\nB support", "C support", {})
    tricky = admit(agent(), None, {"size": 3, "team": "{{ size }}"})
    assert tricky.message == "C {{ size }}", "values are never rendered"
    assert admit(agent(), " Hi {{ x }} ", {"size": 3}).message == " Hi {{ x }} ", "a message is no template"
    assert admit(agent(), "x", {"size": 3, "team": "b"}).params == {"size": 3, "team": "b"}


@pytest.mark.parametrize(
    ("params", "unknown", "missing", "wrong", "hint"),
    [
        ({}, [], ["size"], [], "set it, for example with --param size=VALUE"),
        ({"size": 3, "b": 1, "a": 2}, ["a", "b"], [], [], "params of this agent: size, team"),
        ({"size": 3, "taem": 1}, ["taem"], [], [], 'did you mean "team"?'),
        ({"size": "3"}, [], [], ["size"], None),
        ({"size": 0, "team": 7}, [], [], ["size", "team"], None),
        ({"team": 7, "x": 1}, ["x"], ["size"], ["team"], "params of this agent: size, team"),
        ({"size": {1, 2}}, [], [], ["size"], None),
        ({"size": 1, "team": None}, [], [], ["team"], None),
    ],
)
def test_wrong_params_are_rejected_by_name(
    params: dict[str, Any], unknown: list[str], missing: list[str], wrong: list[str], hint: str | None
) -> None:
    error = admission_error(agent(), "x", params)
    assert error.fields == {"reason": "params", "unknown": unknown, "missing": missing, "wrong": wrong}
    assert all(f'"{name}"' in error.message for name in (*unknown, *missing, *wrong))
    assert error.hint == hint


def test_rejection_does_not_show_param_values() -> None:
    assert "hunter2" not in admission_error(agent(), "x", {"size": "hunter2"}).message


@pytest.mark.parametrize("message", ["", " \n\t "])
def test_empty_message_is_rejected(message: str) -> None:
    assert admission_error(agent(), message, {"size": 3}).fields["reason"] == "empty"


def test_missing_message_and_input_are_rejected_with_a_hint() -> None:
    error = admission_error(agent(input=None), None, {"size": 3})
    assert (error.fields, error.hint) == ({"reason": "empty"}, "pass a message, or set `input` in the spec")


def test_continued_conversation_needs_no_message() -> None:
    """Without a message the conversation goes on as it is; the package's own input is not said again."""
    going_on = admit(agent(), None, {"size": 3}, goes_on=True)
    assert (going_on.message, going_on.instructions) == (None, "A 3\n\nB support")
    assert admit(agent(), "x", {"size": 3}, goes_on=True).message == "x"
    with pytest.raises(RequestError, match="no message"):
        admit(agent(), " ", {"size": 3}, goes_on=True)


def test_nudge_and_compact_prompts_are_rendered_only_if_needed() -> None:
    """What the runtime may tell the model is rendered with the run's params, and only if it can be needed."""
    prompts = {"guards": {"nudge": "Go on, {{ team }}."}, "context": {"prompt": "Sum up for {{ team }}."}}
    assert admit(agent(**prompts), "x", {"size": 3}).prompts == {}
    nudged = agent(guards={**prompts["guards"], "empty_outcome": 0}, context=prompts["context"])
    assert admit(nudged, "x", {"size": 3}).prompts == {"nudge": "Go on, support."}
    compacted = agent(guards=prompts["guards"], context={**prompts["context"], "overflow": "compact"})
    assert admit(compacted, "x", {"size": 3, "team": "b"}).prompts == {"compact": "Sum up for b."}


def test_run_started_holds_the_request_and_the_admitted_input() -> None:
    admitted = admit(agent(), "Hi.", {"size": 3})
    world = world_of_run(Place().world, "r1")
    request = Request(agent="triage", package="sha256:1", attachments=(PICTURE,))
    started = make_run_started(world, agent(), request, admitted)
    assert (started.run, started.package, started.agent, started.rules) == ("r1", "sha256:1", "triage", RULES_VERSION)
    assert started.input == User((Text("Hi."), PICTURE))
    assert (started.params, started.instructions, started.prompts) == (admitted.params, admitted.instructions, {})
    assert (started.replayed, started.earlier, started.parent) == (False, EarlierRuns(), None)
    going_on = make_run_started(world, agent(), request, admit(agent(), None, {"size": 3}, goes_on=True))
    assert going_on.input is None


def test_message_longer_than_max_chars_is_rejected() -> None:
    limited = agent(admission={"max_chars": 3})
    assert admit(limited, "äöü", {"size": 3}).message == "äöü"
    assert admission_error(limited, "äöüß", {"size": 3}).fields == {"reason": "too_long", "limit": 3}
