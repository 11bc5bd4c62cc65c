"""Defaults of argument schemas: which are filled in, and who gets the arguments with and without them."""

from typing import Any

import msgspec
import pytest

from agentrun.canonical_json import data_hash, sorted_json
from agentrun.core.call_validation import fill_in_defaults
from agentrun.core.decide import decide
from agentrun.core.effects import AskHook, RunChild, RunTool, Wait
from agentrun.core.facts import ApprovalAsked, ArgumentsCompleted, CallRefused, Modify, Ruled
from agentrun.core.messages import Assistant
from agentrun.core.package import Package

from ..named_cases import case
from ..packages import package
from .script import Run, agent_tool, calls_reply, hook, mcp_tool, pins, rule, text_reply, tool
from .shape_parts import policy

TEXT, COUNT = {"type": "string"}, {"type": "integer"}
THREE = COUNT | {"default": 3}
PRINT: dict[str, Any] = {
    "type": "object",
    "properties": {"file": TEXT, "copies": COUNT | {"default": 1}, "color": {"type": "boolean", "default": False}},
    "required": ["file"],
    "additionalProperties": False,
}
AS_WRITTEN, COMPLETED = {"file": "a"}, {"file": "a", "copies": 1, "color": False}


def object_of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


GAPS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any] | None]] = {
    "missing": (PRINT, {"file": "a", "copies": 2}, {"file": "a", "copies": 2, "color": False}),
    "present": (PRINT, {"file": "a", "copies": 2, "color": True}, None),
    "null that the model wrote": (PRINT, {"copies": None, "color": True}, None),
    "nested": (object_of(o=object_of(n=THREE)), {"o": {}}, {"o": {"n": 3}}),
    "missing parent": (object_of(o=object_of(n=THREE)), {}, None),
    "missing parent with a default": (object_of(o=object_of(n=THREE) | {"default": {}}), {}, {"o": {"n": 3}}),
    "objects in a list": (
        object_of(l={"type": "array", "items": object_of(n=THREE)}),
        {"l": [{"n": 1}, {}]},
        {"l": [{"n": 1}, {"n": 3}]},
    ),
    "list without gaps": (object_of(l={"type": "array", "items": COUNT}), {"l": [1]}, None),
    "list without items": (object_of(l={"type": "array"}), {"l": [{}]}, None),
    "further properties": (
        {"type": "object", "additionalProperties": object_of(n=THREE)},
        {"a": {}, "b": {"n": 1}},
        {"a": {"n": 3}, "b": {"n": 1}},
    ),
    "null": (object_of(n={"anyOf": [COUNT, {"type": "null"}], "default": None}), {}, None),
    "another type": (object_of(n=COUNT | {"default": "three"}), {}, None),
    "no schema": (object_of(n=True), {}, None),
    "value of another type": (object_of(o=object_of(n=THREE)), {"o": "x"}, None),
    "alternatives": (object_of(o={"anyOf": [object_of(n=THREE)]}), {"o": {}}, None),
    "empty text": (object_of(t=TEXT | {"default": ""}), {}, {"t": ""}),
    "zero": (object_of(n=COUNT | {"default": 0}), {}, {"n": 0}),
}
"""Schema, value, and the completed value. None: there is nothing to fill in."""


def test_what_is_filled_in() -> None:
    for name, (schema, value, completed) in GAPS.items():
        with case(name):
            before = msgspec.json.encode(value)
            found = fill_in_defaults(schema, value)
            assert found == (value if completed is None else completed)
            assert (found is value) is (completed is None), "without a gap it is the same object"
            assert msgspec.json.encode(value) == before, "the value itself is not changed"


def printer(*rules: dict[str, Any], default: str = "allow", **changes: Any) -> Package:
    return package(tools={"print": tool(args=PRINT, **changes)}, policy=policy(*rules, default=default))


def run_print_tool(agent: Package, arguments: str = '{"file": "a"}', **changes: Any) -> Run:
    run = Run(agent, calls_reply(("print", arguments)), text_reply("Done."), **changes)
    run.finish()
    return run


def test_journal_has_arguments_as_the_model_wrote_them_and_as_they_were_completed() -> None:
    run = run_print_tool(printer())
    (reply, _) = (fact.reply.message for fact in run.facts if hasattr(fact, "reply"))
    assert [call.arguments for call in reply.calls] == ['{"file": "a"}']
    assert run.of(ArgumentsCompleted) == [ArgumentsCompleted("c1.0", COMPLETED)]


def test_executor_and_idempotency_key_get_the_completed_arguments() -> None:
    run = run_print_tool(printer())
    (effect,) = (effect for effect in run.effects if isinstance(effect, RunTool))
    assert (effect.arguments, effect.arguments_without_defaults) == (COMPLETED, AS_WRITTEN)
    assert effect.key == data_hash(sorted_json([run.state.started.run, "c1.0", "print", COMPLETED]))
    explicit = run_print_tool(printer(), '{"file": "a", "copies": 1, "color": false}')
    (same,) = (effect for effect in explicit.effects if isinstance(effect, RunTool))
    assert (same.key, same.arguments_without_defaults) == (effect.key, None)


def test_next_request_has_the_arguments_as_the_model_wrote_them() -> None:
    _, request = run_print_tool(printer()).requests
    (message,) = (message for message in request.request.messages if isinstance(message, Assistant))
    assert [call.arguments for call in message.calls] == ['{"file": "a"}']


@pytest.mark.parametrize(("when", "ruling"), [("args.copies == 1", "deny"), ("args.copies > 1", "allow")])
def test_conditions_get_the_completed_arguments(when: str, ruling: str) -> None:
    (ruled,) = run_print_tool(printer(rule("deny", "print", when=when))).of(Ruled)
    assert (ruled.ruling, ruled.reason) == (ruling, None)


def test_conditions_on_results_get_the_completed_arguments() -> None:
    run = run_print_tool(printer(rule("deny", "print", on="tool_result", when="args.copies == 1")))
    assert [ruled.ruling for ruled in run.of(Ruled)] == ["allow", "deny"]
    assert run.of(Ruled)[1].reason is None


def test_hooks_get_the_completed_arguments() -> None:
    agent = package(tools={"print": tool(args=PRINT)}, policy={"default": "allow"}, hooks=[hook("before_tool")])
    (asked,) = (effect for effect in run_print_tool(agent).effects if isinstance(effect, AskHook))
    assert (asked.value, asked.value_without_defaults) == (COMPLETED, AS_WRITTEN)


def test_approval_question_has_the_completed_arguments() -> None:
    questions = []
    for arguments in ('{"file": "a"}', '{"file": "a", "copies": 1, "color": false}', '{"file": "a", "copies": 2}'):
        run = Run(printer(rule("ask", "print")), calls_reply(("print", arguments)), text_reply("Done."))
        asked = run.until(ApprovalAsked)
        assert isinstance(asked, ApprovalAsked)
        step = decide(run.agent, run.state)
        assert isinstance(step, Wait)
        (question,) = step.questions
        questions.append((asked.grant, question.value, question.value_without_defaults))
    omitted, explicit, other = questions
    assert omitted[1:] == (COMPLETED, AS_WRITTEN)
    assert explicit[1:] == (COMPLETED, None)
    assert omitted[0] == explicit[0] != other[0], "the question is about the completed arguments"


def test_rule_that_sets_arguments_leaves_defaults_out_of_the_rewritten_ones() -> None:
    run = run_print_tool(printer(rule("modify", "print", set={"file": "b"})))
    assert [ruled.arguments for ruled in run.of(Ruled) if ruled.ruling == "modify"] == [{"file": "b"}]
    (effect,) = (effect for effect in run.effects if isinstance(effect, RunTool))
    assert effect.arguments == COMPLETED | {"file": "b"}
    assert effect.arguments_without_defaults == {"file": "b"}


def test_rule_that_sets_arguments_of_a_complete_call_keeps_the_others() -> None:
    run = run_print_tool(
        printer(rule("modify", "print", set={"file": "b"})), '{"file": "a", "copies": 2, "color": true}'
    )
    (effect,) = (effect for effect in run.effects if isinstance(effect, RunTool))
    assert (effect.arguments, effect.arguments_without_defaults) == ({"file": "b", "copies": 2, "color": True}, None)


def test_arguments_that_a_hook_rewrote_are_completed_again() -> None:
    agent = package(tools={"print": tool(args=PRINT)}, policy={"default": "allow"}, hooks=[hook("before_tool")])
    run = run_print_tool(agent, hooks={"watch": Modify({"file": "b", "copies": 5})})
    assert [fact.arguments for fact in run.of(ArgumentsCompleted)] == [
        COMPLETED,
        {"file": "b", "copies": 5, "color": False},
    ]
    (effect,) = (effect for effect in run.effects if isinstance(effect, RunTool))
    assert effect.arguments_without_defaults == {"file": "b", "copies": 5}


def test_defaults_that_a_hook_returns_unchanged_are_left_out_of_the_rewritten_arguments() -> None:
    args = object_of(**PRINT["properties"], options=object_of(depth=THREE, size=TEXT))
    agent = package(tools={"print": tool(args=args)}, policy={"default": "allow"}, hooks=[hook("before_tool")])

    def spread(effect: AskHook) -> Modify:
        return Modify({**effect.value, "file": "b", "color": True})

    run = run_print_tool(agent, '{"file": "a", "options": {"size": "a4"}}', hooks={"watch": spread})
    (effect,) = (effect for effect in run.effects if isinstance(effect, RunTool))
    assert effect.arguments == {"file": "b", "copies": 1, "color": True, "options": {"size": "a4", "depth": 3}}
    assert effect.arguments_without_defaults == {"file": "b", "color": True, "options": {"size": "a4"}}


def test_argument_that_a_hook_sets_to_another_type_than_its_default_is_rewritten() -> None:
    agent = package(tools={"print": tool(args=PRINT)}, policy={"default": "allow"}, hooks=[hook("before_tool")])
    run = run_print_tool(agent, hooks={"watch": Modify({"file": "a", "copies": 1, "color": 0})})
    assert [fact.code for fact in run.of(CallRefused)] == ["tool.invalid_arguments"], "0 is not false"


def test_required_argument_with_a_default_is_filled_in() -> None:
    args = object_of(copies=COUNT | {"default": 1}) | {"required": ["copies"]}
    run = Run(
        package(tools={"print": tool(args=args)}, policy={"default": "allow"}),
        calls_reply("print"),
        text_reply("Done."),
    )
    assert run.finish().tool_calls == 1


def test_invalid_arguments_are_refused_and_not_completed() -> None:
    run = run_print_tool(printer(), '{"file": 3}')
    assert [fact.code for fact in run.of(CallRefused)] == ["tool.invalid_arguments"]
    assert run.of(ArgumentsCompleted) == []


def test_each_action_has_its_own_defaults() -> None:
    actions = {"open": object_of(days=COUNT | {"default": 3}), "close": object_of(note=TEXT | {"default": "done"})}
    agent = package(tools={"ticket": tool(actions=actions)}, policy={"default": "allow"})
    batch = calls_reply(
        ("ticket", '{"action": "open"}'), ("ticket", '{"action": "close"}'), ("ticket", '{"action": "x"}')
    )
    run = Run(agent, batch, text_reply("Done."))
    run.finish()
    assert {fact.call: fact.arguments for fact in run.of(ArgumentsCompleted)} == {
        "c1.0": {"action": "open", "days": 3},
        "c1.1": {"action": "close", "note": "done"},
    }


def test_defaults_of_the_signature_are_filled_in_unless_the_schema_has_another_or_requires_them() -> None:
    args = object_of(file=TEXT, cc=TEXT, copies=THREE, tags={"type": "array"}, to=TEXT, any=True) | {"required": ["to"]}
    defaults = {"cc": "", "copies": 9, "tags": [], "to": "x", "any": 1, "other": 1, "file": 7}
    agent = package(tools={"print": tool(args=args, defaults=defaults)}, policy={"default": "allow"})
    run = run_print_tool(agent, '{"to": "me"}')
    (effect,) = (effect for effect in run.effects if isinstance(effect, RunTool))
    assert effect.arguments == {"to": "me", "cc": "", "copies": 3, "tags": []}, "7 is not a text"
    assert effect.arguments_without_defaults == {"to": "me"}
    assert [fact.code for fact in run_print_tool(agent, "{}").of(CallRefused)] == ["tool.missing_field"]


def test_defaults_of_the_signature_are_filled_in_for_the_fields_of_an_action() -> None:
    actions = {
        "open": object_of(note=TEXT),
        "close": object_of(note=TEXT) | {"required": ["note"]},
        "list": object_of(),
    }
    agent = package(tools={"ticket": tool(actions=actions, defaults={"note": ""})}, policy={"default": "allow"})
    batch = calls_reply(*(("ticket", f'{{"action": "{action}"}}') for action in actions))
    run = Run(agent, batch, text_reply("Done."))
    run.finish()
    assert run.of(ArgumentsCompleted) == [ArgumentsCompleted("c1.0", {"action": "open", "note": ""})]
    assert [fact.code for fact in run.of(CallRefused)] == ["tool.missing_field"]


def test_mcp_server_gets_what_the_model_wrote_and_rules_get_the_completed_arguments() -> None:
    rules = [rule("deny", "files.read", when="args.copies > 1", id="r1"), rule("allow", "*", id="r2")]
    server = mcp_tool("read") | {"pinned": pins("read", args=PRINT)}
    agent = package(tools={"files": server}, policy={"default": "deny", "rules": rules})
    run = Run(agent, calls_reply(("files.read", '{"file": "a"}')), text_reply("Done."))
    run.finish()
    assert run.of(ArgumentsCompleted) == [ArgumentsCompleted("c1.0", COMPLETED)]
    assert [(ruled.ruling, ruled.reason) for ruled in run.of(Ruled)] == [("allow", None)]
    (effect,) = (effect for effect in run.effects if isinstance(effect, RunTool))
    assert (effect.arguments, effect.arguments_without_defaults) == (AS_WRITTEN, None)
    assert effect.key == data_hash(sorted_json([run.state.started.run, "c1.0", "files.read", COMPLETED]))


def test_sub_agent_gets_what_the_model_wrote_and_rules_get_the_completed_arguments() -> None:
    args = {
        "type": "object",
        "properties": {"message": TEXT, "options": object_of(depth=COUNT | {"default": 3})},
        "required": ["message"],
    }
    rules = [rule("allow", "helper", when="args.options.depth == 3")]
    agent = package(
        tools={"helper": agent_tool(args=args)},
        agents={"helper": msgspec.to_builtins(package(name="child"))},
        policy=policy(*rules, default="deny"),
    )
    run = Run(agent, calls_reply(("helper", '{"message": "go", "options": {}}')), text_reply("Done."))
    run.finish()
    (effect,) = (effect for effect in run.effects if isinstance(effect, RunChild))
    assert effect.params == {"options": {}}


def test_calls_are_completed_again_with_another_package() -> None:
    run = Run(printer(rule("ask", "print")), calls_reply(("print", '{"file": "a"}')), text_reply("Done."))
    run.until(ApprovalAsked)
    other = object_of(file=TEXT, copies=COUNT | {"default": 9})
    run.crash(package(tools={"print": tool(args=other)}, policy={"default": "allow"}))
    run.finish()
    (effect,) = (effect for effect in run.effects if isinstance(effect, RunTool))
    assert effect.arguments == {"file": "a", "copies": 9}


def test_calls_keep_their_completed_arguments_with_the_same_package() -> None:
    run = Run(printer(rule("ask", "print")), calls_reply(("print", '{"file": "a"}')), text_reply("Done."))
    run.until(ApprovalAsked)
    run.crash()
    run.people["print"] = "approved"
    run.finish()
    assert len(run.of(ArgumentsCompleted)) == 1
    (effect,) = (effect for effect in run.effects if isinstance(effect, RunTool))
    assert effect.arguments == COMPLETED
