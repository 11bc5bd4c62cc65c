"""Python functions as hooks through whole runs, live, recorded and replayed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentrun.canonical_json import text_hash
from agentrun.core.facts import CallRefused, Continue, Deny, HookAnswered, HookFailure, Inject, Modify, ToolFinished
from agentrun.core.messages import text_of
from agentrun.core.package import Hook
from agentrun.engine.hooks import HookQuestion
from agentrun.engine.run import FinishedRun
from agentrun.errors import PackageError, ToolError
from agentrun.tools.python import load_python_hooks

from .agent_runs import Runs, facts
from .python_desk import Desk

POINTS = ("on_input", "before_model", "after_model", "before_tool", "after_tool", "on_output", "on_stop")
POINT_VALUES: dict[str, Any] = {
    "on_input": "Where is it?",
    "before_model": "Where is it?",
    "after_model": "",
    "before_tool": {"order": "7"},
    "after_tool": "order 7 is late",
    "on_output": "It is late.",
    "on_stop": {"code": None, "status": "completed"},
}
HOOK = """
from agentrun import Continue, Deny, HookQuestion, Inject, Modify
{form} watch(question: HookQuestion):
    trace(f"{{question.point}} {{question.target}}")
    {body}
"""


def runs_with_hook(desk: Desk, point: str, body: str = "return None", *, form: str = "def", **keys: Any) -> Runs:
    more = "".join(f", {key}: {value}" for key, value in keys.items())
    spec = f'hooks: [{{id: watch, at: {point}, call: "desk:watch"{more}}}]\n'
    return Runs(desk.root, spec, HOOK.format(form=form, body=body))


def answers(done: FinishedRun) -> list[Any]:
    return [fact.answer for fact in facts(done, HookAnswered)]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("form", ["def", "async def"])
def test_hook_is_asked_at_every_point(desk: Desk, point: str, form: str) -> None:
    here = runs_with_hook(desk, point, "assert question.value == " + repr(POINT_VALUES[point]), form=form)
    if point == "after_model":
        here = runs_with_hook(desk, point, "assert question.value in ('', 'It is late.')", form=form)
    if point == "before_model":
        here = runs_with_hook(desk, point, "assert isinstance(question.value, str)", form=form)
    done = here.recorded_and_replayed()
    assert done.outcome.answer == "It is late."
    assert set(map(repr, answers(done))) == {"Continue()"}
    asked = [line for line in here.traces if line.startswith(point)]
    assert len(asked) == (2 if point in ("before_model", "after_model") else 1)


@pytest.mark.parametrize(
    ("point", "body", "answer"),
    [
        ("on_input", "return Modify('Where is 8?')", Modify("Where is 8?")),
        ("on_input", "return Inject('Be kind.')", Inject("Be kind.")),
        ("before_model", "return Inject('Be kind.')", Inject("Be kind.")),
        ("after_model", "return Modify('One moment.')", Modify("One moment.")),
        ("before_tool", "return Modify({'order': '8'})", Modify({"order": "8"})),
        ("after_tool", "return Modify('nothing')", Modify("nothing")),
        ("on_output", "return Modify('It is here.')", Modify("It is here.")),
        ("on_stop", "return Continue()", Continue()),
    ],
)
def test_answers_of_hooks_change_the_run(desk: Desk, point: str, body: str, answer: Any) -> None:
    here = runs_with_hook(desk, point, body)
    done = here.recorded_and_replayed()
    assert done.outcome.status == "completed", done.outcome
    assert answers(done)[0] == answer
    match point:
        case "before_tool":
            assert "look 8" in here.traces
            assert text_of(facts(done, ToolFinished)[0].parts) == "order 8 is late"
        case "on_output":
            assert done.outcome.answer == "It is here."
        case _:
            assert "look 7" in here.traces


@pytest.mark.parametrize("point", POINTS[:-1])
def test_deny_stops_the_call_or_the_run(desk: Desk, point: str) -> None:
    here = runs_with_hook(desk, point, "return Deny('not today')")
    done = here.recorded_and_replayed()
    if point in ("before_tool", "after_tool"):
        assert done.outcome.status == "completed"
        assert facts(done, CallRefused)[0].told == "tool.denied: the hook watch denied look: not today"
        assert ("look 7" in here.traces) == (point == "after_tool")
    else:
        assert (done.outcome.code, done.exit_code) == ("policy.denied", 4)
    assert answers(done)[0] == Deny("not today")


FAILURES = [
    ("raise ValueError('with a secret')", "exception", "ValueError"),
    ("raise SystemExit(1)", "exception", "SystemExit"),
    ("raise KeyboardInterrupt", "exception", "RuntimeError"),
    ("import time; time.sleep(5)", "timeout", None),
    ("return 'yes'", None, None),
    ("return Failed", "exception", "NameError"),
    ("return Modify('a text')", None, None),
    ("return Modify({'order': object()})", "answer", None),
]


@pytest.mark.parametrize("raised", ["ValueError", "SystemExit", "KeyboardInterrupt", "End", "asyncio.CancelledError"])
def test_async_hook_that_raises_denies_the_call(desk: Desk, raised: str) -> None:
    body = f"import asyncio\n    class End(BaseException): ...\n    raise {raised}"
    here = runs_with_hook(desk, "before_tool", body, form="async def")
    done = here.recorded_and_replayed()
    (answer,) = answers(done)
    assert isinstance(answer, HookFailure)
    assert (done.outcome.status, "look 7" in here.traces) == ("completed", False)


@pytest.mark.parametrize(("body", "reason", "error"), FAILURES, ids=range(len(FAILURES)))
def test_failing_hook_denies_the_call(desk: Desk, body: str, reason: str | None, error: str | None) -> None:
    check_failing_hook(desk, "before_tool", "deny", body, reason, error)


@pytest.mark.parametrize(("body", "reason", "error"), FAILURES[:6], ids=range(6))
def test_failing_hook_that_may_fail_is_ignored(desk: Desk, body: str, reason: str | None, error: str | None) -> None:
    check_failing_hook(desk, "on_input", "continue", body, reason, error)


def check_failing_hook(
    desk: Desk, point: str, on_failure: str, body: str, reason: str | None, error: str | None
) -> None:
    timeout = "200ms" if reason == "timeout" else "60s"
    here = runs_with_hook(desk, point, body, on_failure=on_failure, timeout=timeout)
    done = here.recorded_and_replayed()
    assert ("look 7" in here.traces) == (on_failure == "continue")
    (answer,) = answers(done)
    assert isinstance(answer, HookFailure)
    assert answer.fault.fields["hook"] == "watch"
    assert (answer.fault.fields.get("reason"), answer.fault.fields.get("error")) == (reason, error)
    assert "secret" not in done.canonical()


def test_async_hook_that_takes_too_long_times_out(desk: Desk) -> None:
    body = "import asyncio; await asyncio.sleep(5)"
    done = runs_with_hook(desk, "before_tool", body, form="async def", timeout="100ms").recorded_and_replayed()
    assert answers(done)[0].fault.fields["reason"] == "timeout"


def test_hooks_run_in_the_order_of_order_and_id(desk: Desk) -> None:
    """By point, order and id: not by the order of the file."""
    hooks = [("c", 1), ("b", 0), ("a", 1)]
    spec = "hooks:\n" + "".join(
        f'  - {{id: {name}, at: before_tool, order: {order}, call: "desk:{name}"}}\n' for name, order in hooks
    )
    code = "".join(f"\ndef {name}(question):\n    trace({name!r})\n" for name, _ in hooks)
    here = Runs(desk.root, spec, code)
    here.recorded_and_replayed()
    assert here.traces == ["b", "a", "c", "look 7"]


def test_print_of_a_hook_is_reported(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    here = runs_with_hook(desk, "before_tool", "print('looking at', question.target)")
    here.live()
    assert ("watch", "looking at look\n") in here.printed
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("def watch(question):\n    return question.value['amount']\n", "KeyError: 'amount' (desk.py:2)"),
        ("async def watch(question):\n    raise OSError('a' * 288 + 'Zq8-hunter2')\n", f"OSError: {'a' * 288}*"),
        ("def watch():\n    return None\n", "TypeError: watch() takes 0 positional arguments but 1 was given"),
        ("import nowhere\ndef watch(question): ...\n", "desk cannot be imported: ModuleNotFoundError: No module named"),
    ],
    ids=["raises", "has a secret", "takes nothing", "cannot be imported"],
)
def test_exception_of_a_hook_is_reported_with_its_place(desk: Desk, source: str, told: str) -> None:
    desk.write("desk.py", source)
    found: list[tuple[str, str]] = []
    asked = load_python_hooks(
        [desk.root],
        [hook(source=text_hash(source))],
        printed=lambda name, text: found.append((name, text)),
        clean=lambda text: text.replace("Zq8-hunter2", "*"),
    )
    with pytest.raises((KeyError, OSError, TypeError, ImportError)):
        asyncio.run(asked["watch"](HookQuestion("r", "before_tool", "c1.0", "look", {"order": "7"})))
    ((name, text),) = found
    assert (name, text[: len(told)]) == ("watch", told)
    assert len(text.removesuffix(" (desk.py:2)")) <= 300


def test_a_hook_that_changed_is_refused_before_the_run(desk: Desk) -> None:
    here = runs_with_hook(desk, "on_input")
    compiled = here.compiled()
    (here.root / "desk.py").write_text("raise SystemExit('imported')\n")
    with pytest.raises(ToolError) as caught:
        here.live(compiled=compiled)
    assert (caught.value.code, caught.value.fields["hook"]) == ("tool.drift", "watch")
    assert "hook watch" in caught.value.message
    assert here.news == [], "there was no run"


def test_hook_module_changed_during_the_run_is_drift(desk: Desk) -> None:
    """Between the start and the first question."""
    here = runs_with_hook(desk, "on_output")
    (here.root / "shop.py").write_text("")
    package = here.package
    found = load_python_hooks([here.root], package.hooks)
    (here.root / "desk.py").write_text("def watch(question):\n    return None\n")
    with pytest.raises(ToolError, match=r"tool\.drift"):
        asyncio.run(found["watch"](HookQuestion("r", "on_output", "output", "output", "x")))


def hook(**changes: Any) -> Hook:
    base: dict[str, Any] = {
        "id": "watch",
        "at": "on_input",
        "module": "desk",
        "function": "watch",
        "source": "",
        "order": 0,
        "timeout": 1000,
        "on_failure": "deny",
    }
    return Hook(**{**base, **changes})


def test_two_functions_with_one_hook_id_are_refused(desk: Desk, tmp_path: Path) -> None:
    """An agent and its sub-agent: the function of one must not answer for the other."""
    desk.write("desk.py", "def watch(question):\n    return None\ndef other(question):\n    return None\n")
    source = desk.call("desk:watch").tool.source  # type: ignore[union-attr]  # it is a Python tool
    same = [hook(source=source), hook(source=source, at="on_stop")]
    assert list(load_python_hooks([desk.root], same)) == ["watch"]
    with pytest.raises(PackageError, match="two different hooks with the id 'watch'"):
        load_python_hooks([desk.root], [*same, hook(source=source, function="other")])
