"""Unknown keywords and names passed to `agentrun.run` are refused with a suggestion."""

from typing import Any

import msgspec
import pytest

import agentrun
from agentrun.engine.memory import MemoryJournals
from agentrun.errors import HostError, RequestError
from agentrun.testing import StepClock, calls, scripted, sink, stub, text

from ..core.script import agent_tool, hook, mcp_tool, tool
from ..packages import package

INNER = package(name="inner", tools={"find": tool()})
FULL_AGENT = package(
    tools={"pay": tool(), "files": mcp_tool("read"), "ask": agent_tool()},
    agents={"ask": msgspec.to_builtins(INNER)},
    hooks=[hook("before_tool", id="careful")],
    sinks={"out": {"kind": "stdout", "delivery": "optional", "timeout": 1}},
    policy={"default": "allow", "rules": []},
)


def run_with(**given: Any) -> Any:
    return agentrun.run(FULL_AGENT, "Hi.", model=scripted(text("Hello.")), **{"clock": StepClock(), **given})


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("tool", "unknown keyword argument 'tool': did you mean \"tools\"?"),
        ("banana", "unknown keyword argument 'banana'"),
    ],
)
def test_unknown_keyword_is_refused_with_a_suggestion(word: str, said: str) -> None:
    with pytest.raises(TypeError) as raised:
        run_with(**{word: {}})
    assert str(raised.value) == said
    with pytest.raises(TypeError):
        agentrun.resume("run-1", journals={}, **{word: {}})  # type: ignore[arg-type]  # the point


@pytest.mark.parametrize(
    ("key", "name", "hint"),
    [
        ("tools", "payy", 'did you mean "pay"?'),
        ("tools", "files.write", 'did you mean "files.read"?'),
        ("hooks", "carefull", 'did you mean "careful"?'),
        ("sinks", "elsewhere", "use the names that the spec declares under `sinks`"),
    ],
)
def test_unknown_tool_hook_or_sink_is_refused_with_a_suggestion(key: str, name: str, hint: str) -> None:
    with pytest.raises(HostError) as raised:
        run_with(**{key: {name: lambda question: None}})
    assert (raised.value.code, raised.value.hint) == ("host.missing", hint)
    assert raised.value.fields == {"name": name, "what": key.removesuffix("s"), "run": "run-1"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"package": 5}, "`package` must be a package, or the path of a spec or package, not int"),
        ({"message": 5}, "`message` must be a string, not int"),
        ({"message": "\ud800"}, "`message` contains a lone surrogate, which is no character and cannot be written"),
        ({"params": 5}, "`params` must be a mapping of names to values, not int"),
        ({"params": {1: 2}}, "the names in `params` must be strings, not int"),
        ({"journals": {}}, "`journals` must be an object with a method `open`, not dict"),
        ({"clock": 5}, "`clock` must be an object with a method `now`, not int"),
        ({"approver": "ada"}, "`approver` must be an object with a method `answer`, not str"),
        ({"env_file": 5}, "`env_file` must be a path, not int"),
        ({"project": 5}, "`project` must be a path, not int"),
        ({"model": 5}, "`model` must be a function or an object with a method `ask`, not int"),
        ({"model": {"openai": 5}}, '`model["openai"]` must be a function or an object with a method `ask`, not int'),
        ({"tools": 5}, "`tools` must be a mapping from names to functions or objects, not int"),
        ({"tools": {"pay": 5}}, '`tools["pay"]` must be a function or an object with a method `run`, not int'),
        ({"sinks": {"out": 5}}, '`sinks["out"]` must be a function or an object with a method `deliver`, not int'),
        (
            {"tools": {"pay": dict}},
            '`tools["pay"]` must be a function or an object with a method `run`, not the class dict',
        ),
        (
            {"tools": {"python": print}},
            '`tools["python"]` is for several tools, so it must be an object with a method `run`, not a function',
        ),
        ({"profile": 5}, "`profile` must be a string, not int"),
        ({"profile": "ci"}, "`profile` needs the path of a spec: a package is already compiled"),
        ({"session": 5}, "`session` must be a string, not int"),
        ({"session_start": "yes"}, '`session_start` must be one of continue, new, create, not "yes"'),
        ({"history": "Hi."}, "`history` must be a list of messages, not str"),
        ({"history": [5]}, "`history[0]` must be a message, or a dict in OpenAI's chat form, not int"),
        (
            {"history": [{"role": "system"}]},
            "`history[0]`: a message with the role system is not part of a history: the spec has the instructions",
        ),
        (
            {"history": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "`history[0]`: a part of the type 'image_url' cannot be read: pass images and files as `attachments`",
        ),
        ({"run_id": 5}, "`run_id` must be a run id, which is a string, not int"),
        ({"attachments": "a.png"}, "`attachments` must be a list of paths and attachments, not str"),
        ({"attachments": [5]}, "`attachments[0]` must be a path or an Attachment, not int"),
        ({"store": 5}, "`store` must be True, False or a path, not int"),
        ({"mode": "tape"}, '`mode` must be one of live, record, replay, auto, not "tape"'),
        ({"cassette": 5}, "`cassette` must be a path, not int"),
        (
            {"cassette": "a.yaml"},
            "`model` cannot be combined with mode='replay': everything in a replay comes from the cassette",
        ),
        (
            {"cassette": "a.yaml", "mode": "live"},
            "`cassette` cannot be combined with mode='live': a live run uses no cassette",
        ),
        (
            {"session": "ada", "mode": "record"},
            "`session` cannot be combined with mode='record': session runs are always live",
        ),
        (
            {"session": "ada", "store": False},
            "`session` cannot be combined with `store=False`: a session is in a store",
        ),
    ],
    ids=str,
)
def test_argument_of_the_wrong_type_is_refused_with_a_sentence(given: dict[str, Any], message: str) -> None:
    arguments = {"package": FULL_AGENT, "message": "Hi.", "model": scripted(text("Hello.")), "clock": StepClock()}
    with pytest.raises((TypeError, ValueError)) as raised:
        agentrun.run(**{**arguments, **given})
    assert str(raised.value) == message


def test_store_and_journals_are_not_combined() -> None:
    with pytest.raises(ValueError, match="`store` cannot be combined with `journals`: a run has one place"):
        run_with(store=True, journals=MemoryJournals())
    with pytest.raises(ValueError, match="`session` cannot be combined with these `journals`"):
        run_with(session="ada", journals=MemoryJournals())


def test_hook_that_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match=r'`hooks\["careful"\]` must be a function, not str'):
        run_with(hooks={"careful": "yes"})


@pytest.mark.parametrize("value", [float("inf"), float("nan"), {"a": [float("-inf")]}], ids=str)
def test_param_that_json_does_not_have_is_refused(value: Any) -> None:
    with pytest.raises(RequestError, match='the param "team" is invalid: the value is not JSON'):
        agentrun.run(package(params={"team": {}}), "Hi.", params={"team": value}, model=scripted(text("Hello.")))


def test_resume_refuses_a_wrong_run_id_and_audit_a_wrong_journal() -> None:
    with pytest.raises(TypeError, match="`run` must be a run id"):
        agentrun.resume(7, journals=MemoryJournals())  # type: ignore[arg-type]  # the point
    with pytest.raises(ValueError, match="because a run id names a folder"):
        agentrun.resume("../run-1", journals=MemoryJournals())
    with pytest.raises(TypeError, match="`journal` must be a path or the records of a journal, not int"):
        agentrun.audit(5, FULL_AGENT)  # type: ignore[arg-type]  # the point


def test_names_and_kinds_of_tools_hooks_and_sinks_are_accepted() -> None:
    names = ("pay", "files", "files.read", "find", "python", "http", "shell", "mcp")
    tools = {name: stub(name) for name in names}
    sinks = {"out": sink(), "file": sink()}
    model = scripted(calls("pay"), text("Done."))
    done = agentrun.run(
        FULL_AGENT,
        "Hi.",
        model=model,
        tools=tools,
        hooks={"careful": lambda question: agentrun.Continue()},
        sinks=sinks,
        clock=StepClock(),
    )
    assert done.exit_code == 0
    assert tools["pay"].count == 1
