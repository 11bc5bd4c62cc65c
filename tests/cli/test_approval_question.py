"""What an approval question shows for every kind of tool and sink."""

from __future__ import annotations

from typing import Any

import pytest

from agentrun.cli.approval_prompt import build_approval_question
from agentrun.core.package import Package
from agentrun.engine.approvals import DetailedQuestion
from agentrun.report.approval_question import full_question_lines

from ..core.script import SINK, agent_tool, mcp_tool, tool
from ..engine.policy_runs import ARGS, HTTP, OWN, SHELL
from ..packages import package

AUTH = {"secret": "${TOKEN}", "header": "Authorization", "scheme": "Bearer"}
TOOLS: dict[str, dict[str, Any]] = {
    "python": tool(args=ARGS),
    "shell": OWN | SHELL | {"args": ARGS, "cwd": "build", "stdin": "{{ args.q }} {{ team }}"},
    "http": OWN
    | HTTP
    | {
        "args": ARGS,
        "headers": {"X-Key": "${KEY}"},
        "body": {"q": "{{ args.q }}"},
        "auth": AUTH,
        "effect": "idempotent",
    },
    "srv": mcp_tool("pay", command=["uvx", "pay-server"]),
    "web": mcp_tool("pay", command=[], url="https://mcp.example.com/x"),
    "helper": agent_tool(),
}
SINKS: dict[str, dict[str, Any]] = {
    "paper": SINK,
    "lines": SINK | {"kind": "jsonl", "path": "out.jsonl"},
    "hook": {
        "kind": "http",
        "delivery": "required",
        "timeout": 1,
        "url": "https://hooks.example.com/${TEAM}",
        "headers": {},
        "auth": None,
        "private_network": False,
    },
    "screen": {"kind": "stdout", "delivery": "required", "timeout": 1},
}
AGENT: Package = package(tools=TOOLS, sinks=SINKS)

QUESTION_LINES: dict[str, list[str]] = {
    "python": ["function  shop:search", "argument  n = 1", 'argument  q = "a b"'],
    "shell": [
        'command   "/usr/bin/pay" "1"',
        'in        "build" in the project',
        'stdin     "a b support"',
        "argument  n = 1",
        'argument  q = "a b"',
    ],
    "http": [
        'request   POST "https://api.example.com/1"',
        'host      "api.example.com"',
        'header    X-Key: "${KEY}"',
        'header    Content-Type: "application/json"',
        'body      "{\\"q\\":\\"a b\\"}"',
        'secret    ${TOKEN} as "Authorization"',
        "argument  n = 1",
        'argument  q = "a b"',
    ],
    "srv.pay": ['server    "/usr/bin/uvx" "pay-server"', "argument  n = 1", 'argument  q = "a b"'],
    "web.pay": ['server    "https://mcp.example.com/x"', "argument  n = 1", 'argument  q = "a b"'],
    "helper": ["runs      a sub-agent, under its own policy", "argument  n = 1", 'argument  q = "a b"'],
    "deliver:paper": ['file      "out.txt"', 'text      "Done."'],
    "deliver:lines": ['file      "out.jsonl"', 'text      "Done."'],
    "deliver:hook": ['request   POST "https://hooks.example.com/${TEAM}"', 'text      "Done."'],
    "deliver:screen": ["to        standard output", 'text      "Done."'],
}


def question_lines(subject: str, value: Any = None, agent: str = "triage") -> list[str]:
    is_sink = subject.startswith("deliver:")
    target = subject.removeprefix("deliver:")
    asked = DetailedQuestion(
        *(subject if is_sink else "c1.0", "sha256:q", target),
        "Done." if is_sink else value or {"n": 1, "q": "a b"},
        *(("r1",), None, {"team": "support"}),
        agent=agent,
        tool=None if is_sink else AGENT.tools[target.partition(".")[0]],
        sink=AGENT.sinks[target] if is_sink else None,
        program={"shell": "/usr/bin/pay", "srv.pay": "/usr/bin/uvx"}.get(subject),
        limit=1000,
    )
    return [line.text.strip() for line in full_question_lines(build_approval_question(asked, "triage"), 100)]


@pytest.mark.parametrize("subject", QUESTION_LINES)
def test_question_shows_the_details_of_every_tool_and_sink_kind(subject: str) -> None:
    title, rule, *rest, size = question_lines(subject)
    assert title.startswith(
        "approval needed: send the answer to" if ":" in subject else "approval needed: run the tool"
    )
    assert rule == "rule      r1"
    assert rest == QUESTION_LINES[subject]
    assert "sha256:" in size


def test_question_of_a_sub_agent_names_it() -> None:
    """Of a sub-agent it is said which."""
    assert "agent     helper" in question_lines("python", agent="helper")
    assert not [line for line in question_lines("python") if line.startswith("agent")]


@pytest.mark.parametrize(
    ("subject", "value", "line"),
    [
        ("shell", {"n": "-rf", "q": ""}, "command   will not run: argv element 2 would begin with a dash"),
        ("shell", {"n": "a\0b", "q": ""}, "command   will not run: argv element 2 would contain a NUL"),
        ("shell", {"q": ""}, "command   will not run: argv element 2 cannot be filled in"),
        (
            "http",
            {"n": "../x", "q": ""},
            "request   will not be sent: a value for the path of the address contains a slash",
        ),
    ],
)
def test_question_says_why_a_call_will_not_run(subject: str, value: dict[str, Any], line: str) -> None:
    assert any(each.startswith(line) for each in question_lines(subject, value)), question_lines(subject, value)
