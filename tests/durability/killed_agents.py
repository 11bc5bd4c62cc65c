"""Agents whose processes are killed: specs and the Python functions of their tools."""

from __future__ import annotations

from pathlib import Path

DESK = '''\
import os

from agentrun import Inject


def note(q: str) -> str:
    """Note something."""
    file = os.open("notes.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, f"note {q}\\n".encode())
    os.close(file)
    return f"noted {q}"


def greet(question):
    return Inject("Be kind.")


def watch(question):
    return None
'''

_TOOLS = """
tools:
  look:
    kind: http
    description: Finds something.
    url: "{url}/look"
    query: {{q: "{{{{ args.q }}}}"}}
    private_network: true
    args: &q {{type: object, properties: {{q: {{type: string}}}}, required: [q]}}
  set:
    kind: http
    description: Sets something.
    url: "{url}/set"
    method: PUT
    effect: idempotent
    body: &body {{q: "{{{{ args.q }}}}"}}
    private_network: true
    args: *q
  pay:
    kind: http
    description: Pays something.
    url: "{url}/pay"
    method: POST
    effect: at_most_once
    body: *body
    private_network: true
    args: *q
  note: {{kind: python, call: "desk:note", effect: at_most_once}}
"""
_ALLOW = "policy: {{default: allow}}\n"

AGENTS = {
    "plain": "model: {{provider: openai, name: plain}}\n",
    "batch": "model: {{provider: openai, name: batch}}\n" + _TOOLS + _ALLOW,
    "child": "model: {{provider: openai, name: child}}\n"
    "tools: {{billing: {{kind: agent, spec: batch.yaml}}}}\n" + _ALLOW,
    "approval": "model: {{provider: openai, name: batch}}\n"
    + _TOOLS
    + "policy: {{default: allow, rules: [{{id: money, ask: pay}}]}}\n",
    "stream": "model: {{provider: openai, name: stream, stream: true}}\n" + _TOOLS + _ALLOW,
    "hooks": "model: {{provider: openai, name: batch}}\n"
    + _TOOLS
    + _ALLOW
    + 'hooks: [{{id: greet, at: on_input, call: "desk:greet"}}, {{id: watch, at: before_tool, call: "desk:watch"}}]\n'
    + 'sinks: {{inbox: {{kind: http, url: "{url}/inbox", private_network: true}}}}\n',
    "record": "model: {{provider: openai, name: batch}}\n"
    + _TOOLS
    + "policy: {{default: allow, rules: [{{id: money, ask: pay}}]}}\n",
    "session": "model: {{provider: openai, name: stream, stream: true}}\n" + _TOOLS + _ALLOW,
    "compaction": "model: {{provider: openai, name: compaction, context_window: 1500}}\n"
    + _TOOLS
    + _ALLOW
    + "context: {{overflow: compact, compaction: {{keep: 1}}}}\n",
}


def write_agents(folder: Path, url: str) -> None:
    (folder / "pyproject.toml").write_text("[tool.agentrun]\n", encoding="utf-8")
    (folder / "desk.py").write_text(DESK, encoding="utf-8")
    for name, text in AGENTS.items():
        head = f'agentrun: "1"\nname: {name if name != "batch" else "billing"}\ninstructions: Do it.\ninput: Hi.\n'
        head += "budgets: {turns: 8}\n"
        (folder / f"{name}.yaml").write_text(head + text.format(url=url), encoding="utf-8")
