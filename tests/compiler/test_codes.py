"""Every `spec.*` code is raised by a broken project, and the sources contain no other code.

Each is found through the real entry, at an exact place; what a newcomer could do about it is in the hint.
"""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from agentrun.compiler.compile import compile_spec
from agentrun.compiler.validate import validate_document
from agentrun.spec.problems import PROBLEM_CODES, Problem

from ..locks import lock_of
from ..projects import TOOL, agent, place, write_project

ROOT = Path(__file__).parents[2] / "runner" / "agentrun"
ALLOW = "policy: {default: allow}"
CASES = 'agentrun: "1"\ncases: [{name: a}]\n'
PROJECT = "[tool.agentrun]\nimport_root = []\n"


class BrokenSpec(NamedTuple):
    """A spec that begins with these lines, and where the code is found in it."""

    text: str | bytes
    at: str
    hint: str | None = None
    """A part of the hint; None: there is none."""
    files: dict[str, str | bytes] = {}  # noqa: RUF012  # never changed
    whole: bool = False
    """The text is the whole file; nothing is added to it."""
    settings: tuple[str, ...] = ()
    profile: str | None = None
    target: str = "spec.yaml"


def rule(text: str) -> str:
    return f"tools: {{x: {TOOL}}}\npolicy:\n  default: allow\n  rules: [{text}]\n"


def tool(text: str) -> str:
    return f"{ALLOW}\ntools: {{x: {text}}}\n"


def broken_case(text: str, column: int, hint: str) -> BrokenSpec:
    """A case beside a spec that is well."""
    files: dict[str, str | bytes] = {"spec.cases.yaml": f'agentrun: "1"\ncases: [{text}]\n'}
    return BrokenSpec("", f"spec.cases.yaml:2:{column}", hint, files, target="spec.cases.yaml")


BROKEN_SPECS: dict[str, BrokenSpec] = {
    "spec.agent_cycle": BrokenSpec(tool("{kind: agent, spec: spec.yaml}"), "spec.yaml:2:32", "remove this tool"),
    "spec.agent_depth": BrokenSpec(
        tool("{kind: agent, spec: b.yaml}") + "limits: {depth: 1}",
        "b.yaml:2:32",
        "further up",
        {"b.yaml": agent(tool("{kind: agent, spec: c.yaml}")), "c.yaml": agent()},
    ),
    "spec.alias_limit": BrokenSpec("description: &a [*a]", "spec.yaml:1:18"),
    "spec.args": BrokenSpec(
        tool("{kind: shell, description: d, argv: [x], args: {type: string}}"), "spec.yaml:2:59", "type: object"
    ),
    "spec.argv": BrokenSpec(
        tool('{kind: shell, description: d, argv: ["{{ args.a }}"], args: {type: object, properties: {a: true}}}'),
        "spec.yaml:2:49",
        "a fixed command",
    ),
    "spec.case": broken_case("{name: a, input: x, turns: [y]}", 29, "the first of the turns"),
    "spec.assertion": broken_case("{name: a, assert: [{type: turns}]}", 28, "max: 3"),
    "spec.condition": BrokenSpec(rule("{id: r, ask: x, when: arg.a == 1}"), "spec.yaml:4:33", 'did you mean "args"?'),
    "spec.depth_limit": BrokenSpec("a: " + "[" * 65, "spec.yaml:1:67"),
    "spec.documents": BrokenSpec("a: 1\n---\nb: 2\n", "spec.yaml:2:1", "one file for each", whole=True),
    "spec.duplicate_key": BrokenSpec("description: a\ndescription: b", "spec.yaml:2:1", "remove one"),
    "spec.duplicate_name": BrokenSpec(rule("{id: r, ask: x}, {id: r, ask: x}"), "spec.yaml:4:33", "rename one"),
    "spec.empty": BrokenSpec("# nothing\n", "spec.yaml:1:1", whole=True),
    "spec.encoding": BrokenSpec(b"a: \xff\n", "spec.yaml:1:1", "UTF-8", whole=True),
    "spec.env_here": BrokenSpec(
        tool('{kind: shell, description: d, argv: [x, "${HOME}"]}'), "spec.yaml:2:53", "pass the value"
    ),
    "spec.env_name": BrokenSpec(
        'model: {provider: openai, name: m, base_url: "https://${1}/"}', "spec.yaml:1:55", "write ${NAME}"
    ),
    "spec.exec_argv": BrokenSpec(
        tool('{kind: shell, description: d, argv: [env, "{{ args.a }}"], args: {type: object, properties: {a: true}}}'),
        "spec.yaml:2:54",
        "approve each call",
    ),
    "spec.fails_open": BrokenSpec(
        "hooks: [{id: h, at: before_tool, call: 'm:f', on_failure: continue}]",
        "spec.yaml:1:59",
        "remove",
        {"m.py": "def f(question):\n    return None\n"},
    ),
    "spec.fault": broken_case("{name: a, faults: [{at: model, inject: {fatal: x}}]}", 49, "cut_after_chunk"),
    "spec.file_hidden": BrokenSpec("instructions: {file: .env}", "spec.yaml:1:22", "secrets", {".env": "A=b"}),
    "spec.file_missing": BrokenSpec("instructions: {file: p.md}", "spec.yaml:1:22", "p2.md", {"p2.md": "x"}),
    "spec.file_outside": BrokenSpec("instructions: {file: ../p.md}", "spec.yaml:1:22", "inside the project"),
    "spec.file_unreadable": BrokenSpec("instructions: {file: sub}", "spec.yaml:1:22", None, {"sub/x": ""}),
    "spec.given_twice": BrokenSpec(
        "budgets: [{tokens: 1k}, {turns: 2, tokens: 2k}]", "spec.yaml:1:36", "remove one of the two"
    ),
    "spec.header": BrokenSpec(
        tool("{kind: http, description: d, url: 'https://a.example/', headers: {Host: b.example}}"),
        "spec.yaml:2:78",
        "remove it",
    ),
    "spec.illegal_ruling": BrokenSpec(
        rule('{id: r, ask: "*", on: run_start}'), "spec.yaml:4:19", "allow, deny, interrupt"
    ),
    "spec.jmespath": BrokenSpec(
        tool("{kind: http, description: d, url: 'https://a.example/', result: 'a[*].lenght(@)'}"),
        "spec.yaml:2:77",
        'did you mean "length"?',
    ),
    "spec.json_schema": BrokenSpec("params: {p: {tpye: string}}", "spec.yaml:1:14", 'did you mean "type"?'),
    "spec.key": BrokenSpec("? [a]\n: 1", "spec.yaml:1:3", "quote"),
    "spec.lock": BrokenSpec("", "spec.lock:1:1", "agentrun lock", {"spec.lock": "{}"}),
    "spec.look_alike": BrokenSpec(f"{ALLOW}\ntools: {{get-it: {TOOL}, get_it: {TOOL}}}", "spec.yaml:2:59", "clearer"),
    "spec.mcp": BrokenSpec(tool("{kind: mcp}"), "spec.yaml:2:9", "command"),
    "spec.merge_key": BrokenSpec("<<: {a: 1}", "spec.yaml:1:1", "write the keys out"),
    "spec.missing_key": BrokenSpec(tool("{kind: http, description: d}"), "spec.yaml:2:9", "The URL to call."),
    "spec.mixed": BrokenSpec(
        tool('{kind: http, description: d, url: "https://a.example/", headers: {X: "${A} {{ 1 }}"}}'),
        "spec.yaml:2:81",
        "another field",
    ),
    "spec.modify": BrokenSpec(rule("{id: r, modify: x}"), "spec.yaml:4:19", "set:"),
    "spec.name": BrokenSpec("params: {Pa: {type: string}}", "spec.yaml:1:10", '"pa"'),
    "spec.no_budget": BrokenSpec("budgets: {turns: 5}", "spec.yaml:1:1", "tokens: 50k"),
    "spec.no_cassette": broken_case("{name: a, cassette: b}", 29, "--record"),
    "spec.no_default": BrokenSpec(f"tools: {{x: {TOOL}}}", "spec.yaml:1:1", "default: deny"),
    "spec.no_description": BrokenSpec(tool("{kind: shell, argv: [x]}"), "spec.yaml:2:9", "one sentence"),
    "spec.no_price": BrokenSpec(
        "budgets: {cost: 1}\nmodel: {name: m, provider: openai}", "spec.yaml:2:15", "agentrun lock"
    ),
    "spec.no_schema": BrokenSpec("output: {repairs: 1}", "spec.yaml:1:10", "output.schema"),
    "spec.no_spec": BrokenSpec("", "x.cases.yaml:1:1", "next to", {"x.cases.yaml": CASES}, target="x.cases.yaml"),
    "spec.unpinned": BrokenSpec(
        tool("{kind: mcp, command: [x]}"), "spec.yaml:2:9", "agentrun lock", {"spec.lock": lock_of({})}
    ),
    "spec.unsupported": BrokenSpec(
        "model: {name: gpt-4.1, provider: openai-responses, seed: 1}", "spec.yaml:1:52", "another route"
    ),
    "spec.number": BrokenSpec("budgets: {turns: 012}", "spec.yaml:1:18", "or write 12"),
    "spec.out_of_range": BrokenSpec("budgets: {turns: 0, tokens: 1k}", "spec.yaml:1:18"),
    "spec.param_default": BrokenSpec("params: {p: {type: string, default: 1}}", "spec.yaml:1:37"),
    "spec.path": BrokenSpec(
        tool("{kind: shell, description: d, argv: [x], cwd: ../y}"), "spec.yaml:2:58", "without .."
    ),
    "spec.pattern": BrokenSpec('params: {p: {pattern: "(?=a)"}}', "spec.yaml:1:23", "no look-around"),
    "spec.project": BrokenSpec("", "pyproject.toml:2:1", '"import_roots"', {"pyproject.toml": PROJECT}),
    "spec.python": BrokenSpec(tool('{kind: python, call: "m:f"}'), "spec.yaml:2:33", "looked for m.py"),
    "spec.redact": BrokenSpec("replay: {redact: [{name: a}]}", "spec.yaml:1:19", "for example"),
    "spec.reserved": BrokenSpec("params: {args: {type: string}}", "spec.yaml:1:10", "another name"),
    "spec.rule_never_matches": BrokenSpec(rule('{id: r, ask: "y*"}'), "spec.yaml:4:24", "tools: x"),
    "spec.rulings": BrokenSpec(rule("{id: r}"), "spec.yaml:4:11", "exactly one of"),
    "spec.schema_ref": BrokenSpec('params: {p: {$ref: "x.json"}}', "spec.yaml:1:20", "$defs"),
    "spec.secret": BrokenSpec("description: sk-ant-abcdefghijklmnop12345678", "spec.yaml:1:14", "${NAME}"),
    "spec.setting": BrokenSpec("", "--set:1:1", "budgets.turns=3", settings=("budgets",)),
    "spec.shell_line": BrokenSpec(
        tool(
            '{kind: shell, description: d, argv: [sh, -c, "{{ args.a }}"], args: {type: object, properties: {a: {}}}}'
        ),
        "spec.yaml:2:57",
        "as an argument",
    ),
    "spec.stub": BrokenSpec(
        tool(TOOL),
        "spec.cases.yaml:2:30",
        "result: done",
        {"spec.cases.yaml": 'agentrun: "1"\ncases: [{name: a, stubs: {x: {}}}]\n'},
        target="spec.cases.yaml",
    ),
    "spec.tag": BrokenSpec("name: !!str a", "spec.yaml:1:7", "remove the tag"),
    "spec.template_forbidden": BrokenSpec('instructions: "{{ 1.__class__ }}"', "spec.yaml:1:21"),
    "spec.template_render": BrokenSpec('instructions: "{{ 1 / 0 }}"', "spec.yaml:1:19", "change the template"),
    "spec.template_syntax": BrokenSpec('instructions: "{{ }}"', "spec.yaml:1:19", "write a value here"),
    "spec.template_unknown_filter": BrokenSpec(
        'instructions: "{{ 1|uper }}"', "spec.yaml:1:21", 'did you mean "upper"?'
    ),
    "spec.template_unknown_name": BrokenSpec(
        'instructions: "{{ nmae }}"\nparams: {name: {type: string}}', "spec.yaml:1:19", 'did you mean "name"?'
    ),
    "spec.too_large": BrokenSpec("description: '" + "x" * 1024 * 1024 + "'", "spec.yaml:1:1", "split"),
    "spec.tool_never_allowed": BrokenSpec(
        f"tools: {{x: {TOOL}}}\npolicy: {{default: deny}}", "spec.yaml:1:9", "- {id: allow-x, allow: x}"
    ),
    "spec.unknown_arg": BrokenSpec(rule("{id: r, ask: x, when: args.a == 1}"), "spec.yaml:4:38", "known: none"),
    "spec.unknown_key": BrokenSpec("zzz: x", "spec.yaml:1:1", "known keys: "),
    "spec.unknown_param": BrokenSpec(
        rule("{id: r, ask: x, when: params.nmae == 1}") + "params: {name: {type: string}}",
        "spec.yaml:4:40",
        'did you mean "name"?',
    ),
    "spec.unknown_profile": BrokenSpec("profiles: {fast: {}}", "spec.yaml:1:1", 'did you mean "fast"?', profile="fsat"),
    "spec.unknown_provider": BrokenSpec(
        "model: {name: m, provider: opnai}", "spec.yaml:1:28", 'did you mean "openai"?'
    ),
    "spec.unknown_tool": BrokenSpec(rule("{id: r, ask: y}"), "spec.yaml:4:24", "tools: x"),
    "spec.until": BrokenSpec(rule("{id: r, allow: x, until: 2h}"), "spec.yaml:4:29", "write `defer` instead"),
    "spec.unused_param": BrokenSpec("params: {p: {type: string}}", "spec.yaml:1:10", "remove it"),
    "spec.url": BrokenSpec(tool('{kind: http, description: d, url: "ftp://a.example/"}'), "spec.yaml:2:46", "https://"),
    "spec.version": BrokenSpec('agentrun: "2"', "spec.yaml:1:11", 'this agentrun supports "1"'),
    "spec.wrong_text": BrokenSpec("limits: {tool_timeout: 30}\nname: Big Name", "spec.yaml:2:7", '"big_name"'),
    "spec.wrong_type": BrokenSpec("name: 5", "spec.yaml:1:7", "in quotes"),
    "spec.wrong_value": BrokenSpec(tool("{kind: shel, argv: [x]}"), "spec.yaml:2:19", 'did you mean "shell"?'),
    "spec.yaml_syntax": BrokenSpec("name: 'a", "spec.yaml:1:7", "close it"),
}


def problems_of(folder: Path, broken: BrokenSpec) -> list[Problem]:
    text = broken.text if broken.whole or isinstance(broken.text, bytes) else agent(broken.text)
    spec = write_project(folder, {"spec.yaml": text, **broken.files})
    if broken.target != "spec.yaml":
        if broken.target == "x.cases.yaml":  # which has no spec
            spec.unlink()
        return validate_document(folder / broken.target)
    if broken.settings or broken.profile:
        return list(compile_spec(spec, broken.profile, broken.settings).problems)
    return validate_document(spec)


@pytest.mark.parametrize("code", PROBLEM_CODES)
def test_broken_project_gives_its_code_at_the_place(tmp_path: Path, code: str) -> None:
    broken = BROKEN_SPECS[code]
    found = [problem for problem in problems_of(tmp_path, broken) if problem.code == code]
    assert [place(problem, tmp_path) for problem in found] == [broken.at]
    if broken.hint is None:
        assert found[0].hint is None
    else:
        assert broken.hint in (found[0].hint or "")
    assert (found[0].severity == "warning") == PROBLEM_CODES[code].endswith("(warning)")


@pytest.mark.parametrize("code", PROBLEM_CODES)
def test_broken_project_gives_no_other_code(tmp_path: Path, code: str) -> None:
    """One mistake, one problem: what only follows from it is not reported."""
    found = {problem.code for problem in problems_of(tmp_path, BROKEN_SPECS[code])}
    assert found - {code} <= {"spec.wrong_text": {"spec.wrong_type"}}.get(code, set())


def test_sources_raise_exactly_the_known_codes() -> None:
    raised: set[str] = set()
    for path in ROOT.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name != "problems.py":
            raised |= set(re.findall(r'"(spec\.[a-z_]+)"', text)) - {"spec.yaml"}
        if path.name.startswith("template_"):
            raised |= {f"spec.{code}" for code in re.findall(r'"(template_[a-z_]+)"', text)}
    assert raised == set(PROBLEM_CODES)
