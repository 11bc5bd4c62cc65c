"""Semantic checks of a whole spec: params, names, hooks, sinks, model, limits and sub-agents."""

from pathlib import Path

import pytest

from agentrun.compiler.compile import MAX_SUB_AGENTS, compile_spec
from agentrun.compiler.size_limits import MAX_KEYS
from agentrun.compiler.validate import validate_document

from ..projects import TOOL, agent, codes, compile_problems, find_problems, place, remove_marks, write_project


def reported(folder: Path, text: str, files: dict[str, str | bytes] | None = None) -> list[str]:
    """Codes of what is wrong; « marks their places."""
    text, places = remove_marks(text)
    problems = find_problems(folder, text, files)
    assert [problem.at for problem in problems] == [f"spec.yaml:{at}" for at in places]
    return [problem.code.removeprefix("spec.") for problem in problems]


USE = "instructions: '{{ p }}'\n"
ALLOW = "policy: {default: allow}\n"
P = "params: {p: {}}\n"
NO_PRICE = ["no_price"]
CHOICE = "model: {provider: openai, name: m, tool_choice: %s}\n" + ALLOW


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("params: {p: {type: string}}\n" + USE, []),
        ("params: {p: {type: string, default: a}}\n" + USE, []),
        ("params: {p: {type: string, default: «5}}\n" + USE, ["param_default"]),
        ("params: {p: {type: string, pattern: '^a', default: «b}}\n" + USE, ["param_default"]),
        ("params: {p: {$ref: '#/$defs/d', default: «b, $defs: {d: {type: integer}}}}\n" + USE, ["param_default"]),
        ("params: {p: {type: «strng, default: 5}}\n" + USE, ["json_schema"]),
        ("params: {«args: {type: string}}\ninstructions: '{{ args }}'\n", ["reserved"]),
        ("params: {«message: {type: string}}\ninstructions: '{{ message }}'\n", ["reserved"]),
        ("params: {«p: {type: string}}\n", ["unused_param"]),
        ("params: {p: {type: string}}\ninput: '{% if p %}x{% endif %}'\n", []),
        ("params: {p: {type: string}}\nguards: {nudge: '{{ p }}'}\n", []),
        ("params: {«p: {type: string}}\ninstructions: 'p is no {{ 1 }} use'\n", ["unused_param"]),
        (
            f"{P}tools: {{x: {TOOL}}}\npolicy: {{default: deny, rules: [{{id: r, ask: x, when: params.p}}]}}\n",
            [],
        ),
        (
            P + ALLOW + "tools: {x: {kind: shell, description: d, argv: [x], visible: params.p}}\n",
            [],
        ),
        (
            P + ALLOW + "tools: {x: {kind: shell, description: d, argv: [x, '{{ p }}']}}\n",
            [],
        ),
    ],
)
def test_param_problems(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert reported(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("get-order", "get_order"),
        ("get_order", "get__order"),
        ("item1", "iteml"),
        ("item0", "itemo"),
        ("modern", "modem"),
        ("a-b-c", "a_b_c"),
        ("vvalk", "walk"),
        ("s5", "ss"),
    ],
)
def test_names_that_look_alike_are_reported(tmp_path: Path, first: str, second: str) -> None:
    text = f"policy: {{default: allow}}\ntools: {{{first}: {TOOL}, «{second}: {TOOL}}}\n"
    assert reported(tmp_path, text) == ["look_alike"]
    assert reported(tmp_path, f"sinks: {{{first}: {{kind: stdout}}, «{second}: {{kind: stdout}}}}\n") == ["look_alike"]


def test_names_that_differ_are_allowed(tmp_path: Path) -> None:
    names = ["get_order", "get_orders", "set_order", "order", "orders2", "orders3"]
    tools = ", ".join(f"{name}: {TOOL}" for name in names)
    assert reported(tmp_path, f"policy: {{default: allow}}\ntools: {{{tools}}}\n") == []
    # A tool and a param may look alike: nobody takes one for the other.
    assert (
        reported(
            tmp_path,
            f"policy: {{default: allow}}\ntools: {{p1: {TOOL}}}\nparams: {{pl: {{}}}}\ninput: '{{{{ pl }}}}'\n",
        )
        == []
    )


@pytest.mark.parametrize(
    "text",
    [
        f"tools: {{x: {TOOL}}}\npolicy: {{default: allow, rules: [{{id: a, ask: x}}, {{id: «a, ask: x}}]}}\n",
        "hooks: [{id: h, at: on_stop, call: 'm:f'}, {id: «h, at: on_stop, call: 'm:f'}]\n",
        "replay: {redact: [{name: r, path: a}, {name: «r, path: b}]}\n",
        "policy: [{file: p.yaml}, {rules: [{id: «a, on: output, ask: '*'}]}]\n",
    ],
)
def test_duplicate_names_are_reported(tmp_path: Path, text: str) -> None:
    shared = 'agentrun: "1"\npolicy: {rules: [{id: a, on: output, deny: "*"}]}\n'
    assert reported(tmp_path, text, {"m.py": "def f(question): pass\n", "p.yaml": shared}) == ["duplicate_name"]


HOOKS = """\
import functools
def f(question): pass
async def later(question): pass
def many(*questions): pass
def more(question, limit=5, *, deep=False): pass
@functools.partial
def odd(): pass
def none(): pass
def two(question, run): pass
def key(question, *, deep): pass
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("output: {schema: {type: object}, repairs: 3}\n", []),
        ("output: {«repairs: 3, «max_bytes: 5, «max_depth: 2}\n", ["no_schema"] * 3),
        ("output: {schema: {type: «objct}}\n", ["json_schema"]),
        ("hooks: [{id: h, at: on_stop, call: 'm:f'}]\n", []),
        ("hooks: [{id: h, at: on_stop, call: «'m:g'}]\n", ["python"]),
        ("hooks: [{id: h, at: on_stop, call: «'os:system'}]\n", ["python"]),
        *((f"hooks: [{{id: h, at: on_stop, call: 'm:{name}'}}]\n", []) for name in ("later", "many", "more", "odd")),
        *((f"hooks: [{{id: h, at: on_stop, call: «'m:{name}'}}]\n", ["python"]) for name in ("none", "two", "key")),
        ("sinks: {s: {kind: file, path: out/a.json}}\n", []),
        ("sinks: {s: {kind: file, path: «../a.json}}\n", ["path"]),
        ("sinks: {s: {kind: jsonl, path: «/tmp/a}}\n", ["path"]),
        ("replay: {redact: [{name: r, pattern: 'a+'}], volatile: [a.b]}\n", []),
        ("replay: {redact: [«{name: r}]}\n", ["redact"]),
        ("replay: {redact: [{name: r, pattern: «'(?=a)'}]}\n", ["pattern"]),
        ("model: {provider: openai, name: m, tool_choice: none}\n", []),
        ("model: {provider: openai, name: m, tool_choice: «required}\n", ["unknown_tool"]),
        ("model: {provider: openai, name: m, tool_choice: «x}\n", ["unknown_tool"]),
        (CHOICE % "x" + f"tools: {{x: {TOOL}}}\n", []),
        (CHOICE % "«x.y" + f"tools: {{x: {TOOL}}}\n", ["unknown_tool"]),
        (CHOICE % "x.y" + "tools: {x: {kind: mcp, command: [c]}}\n", []),
        (CHOICE % "«x.y" + "tools: {x: {kind: mcp, command: [c], tools: [z]}}\n", ["unknown_tool"]),
        ("budgets: {turns: 5, grace: 4, tokens: 1k}\n", []),
        ("budgets: {turns: 5, grace: «5, tokens: 1k}\n", ["out_of_range"]),
        ("retry: {first_delay: 2s, max_delay: 2000ms}\n", []),
        ("retry: {first_delay: «3s, max_delay: 2s}\n", ["out_of_range"]),
        ("«budgets: {turns: 5}\n", ["no_budget"]),
        ("budgets: {tokens: 1}\n", []),
        ("budgets: {time: 1s}\n", []),
        ("budgets: {tool_calls: 0}\n", []),
        ("budgets: {cost: 1}\nmodel: {provider: openai, name: m, price: {input: 1, output: 2}}\n", []),
        ("budgets: {cost: 1}\nmodel: {provider: openai, name: «m}\n", ["no_price"]),
        ("budgets: {cost: 1}\nmodel: {provider: openai, name: m, price: {input: 1, output: 2}, fallback: [«gemini/n]}",
         NO_PRICE),
    ],
)  # fmt: skip
def test_problems_of_each_section(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert reported(tmp_path, text, {"m.py": HOOKS}) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("spend.turns > 2", []),
        ("calls.x > 0", []),
        ("calls.«q > 0", ["unknown_tool"]),
        ("params.«q > 0", ["unknown_param"]),
        ("args.«a == 1", ["condition"]),
        ("«spnd.turns > 1", ["condition"]),
    ],
)
def test_problems_of_visible_conditions(tmp_path: Path, condition: str, expected: list[str]) -> None:
    text = (
        f"policy: {{default: allow}}\ntools: {{x: {{kind: shell, description: d, argv: [x], visible: {condition}}}}}\n"
    )
    assert reported(tmp_path, text) == expected


def test_visible_may_refer_to_calls_of_mcp_tools(tmp_path: Path) -> None:
    text = "tools: {c: {kind: mcp, command: [x], visible: \"'c.a' in calls\"}}\npolicy: {default: allow}\n"
    assert reported(tmp_path, text) == []
    assert reported(tmp_path, text.replace("'c.a' in calls", "calls['c.a'] > 1")) == []


# --- sub-agents ---------------------------------------------------------------------------------------------


def agent_calling(*specs: str, extra: str = "") -> str:
    tools = ", ".join(f"t{'abcdefgh'[n]}: {{kind: agent, spec: {spec}}}" for n, spec in enumerate(specs))
    return agent(f"policy: {{default: allow}}\ntools: {{{tools}}}\n{extra}")


def problems_of_a_chain(folder: Path, length: int, depth: str = "") -> list[str]:
    """Agents that call each other in a row: spec → a1 → a2 …"""
    files: dict[str, str | bytes] = {f"a{n}.yaml": agent_calling(f"a{n + 1}.yaml") for n in range(1, length)}
    files |= {"spec.yaml": agent_calling("a1.yaml", extra=depth), f"a{length}.yaml": agent()}
    return [f"{place(problem, folder)} {problem.code}" for problem in validate_document(write_project(folder, files))]


def test_sub_agents_deeper_than_the_limit_are_reported(tmp_path: Path) -> None:
    for depth in (1, 2, 3):
        assert problems_of_a_chain(tmp_path, depth, f"limits: {{depth: {depth}}}") == []
        reported = problems_of_a_chain(tmp_path, depth + 1, f"limits: {{depth: {depth}}}")
        assert reported == [f"a{depth}.yaml:2:33 spec.agent_depth"]
    assert problems_of_a_chain(tmp_path, 3) == []
    assert problems_of_a_chain(tmp_path, 4) == ["a3.yaml:2:33 spec.agent_depth"]


def test_depth_limit_of_a_sub_agent_counts_from_itself(tmp_path: Path) -> None:
    write_project(
        tmp_path,
        {
            "a.yaml": agent_calling("b.yaml", extra="limits: {depth: 1}"),
            "b.yaml": agent_calling("c.yaml"),
            "c.yaml": agent(),
        },
    )
    assert [
        problem.code for problem in validate_document(write_project(tmp_path, {"spec.yaml": agent_calling("a.yaml")}))
    ] == ["spec.agent_depth"]


@pytest.mark.parametrize("first", ["spec", "a", "b"])
def test_cycle_is_reported_once_at_the_same_place(tmp_path: Path, first: str) -> None:
    files: dict[str, str | bytes] = {
        "spec.yaml": agent_calling("a.yaml"),
        "a.yaml": agent_calling("b.yaml"),
        "b.yaml": agent_calling("spec.yaml"),
    }
    write_project(tmp_path, files)
    (problem,) = validate_document(tmp_path / f"{first}.yaml")
    assert place(problem, tmp_path) == "spec.yaml:2:33"
    assert problem.message == "sub-agents call each other: a.yaml → b.yaml → spec.yaml → a.yaml"


def test_cycles_of_one_and_two_agents_are_reported(tmp_path: Path) -> None:
    assert codes(tmp_path, agent_calling("spec.yaml")) == ["spec.agent_cycle"]
    assert codes(tmp_path, agent_calling("./spec.yaml")) == ["spec.agent_cycle"]
    assert codes(tmp_path, agent_calling("b.yaml"), {"b.yaml": agent_calling("spec.yaml")}) == ["spec.agent_cycle"]
    assert (
        codes(
            tmp_path,
            agent_calling("b.yaml", "b.yaml", "c.yaml"),
            {"b.yaml": agent_calling("c.yaml"), "c.yaml": agent()},
        )
        == []
    )


def test_sub_agents_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "broken.yaml": "name: [",
        "wrong.yaml": agent("zzz: 1"),
        "meaning.yaml": agent("instructions: '{{ q }}'"),
        "warned.yaml": agent("budgets: {turns: 3}"),
        "tools.yaml": f'agentrun: "1"\ntools: {{x: {TOOL}}}\n',
    }
    text = agent_calling(
        "nothing.yaml", "../up.yaml", "broken.yaml", "wrong.yaml", "meaning.yaml", "warned.yaml", "tools.yaml", "."
    )
    reported = {f"{at.rpartition(':')[0]} {code}" for at, code, _, _ in find_problems(tmp_path, text, files)}
    assert reported == {
        "spec.yaml:2 spec.file_missing",
        "spec.yaml:2 spec.file_outside",
        "spec.yaml:2 spec.file_unreadable",
        "broken.yaml:1 spec.yaml_syntax",
        "wrong.yaml:1 spec.unknown_key",
        "meaning.yaml:1 spec.template_unknown_name",
        "tools.yaml:1 spec.missing_key",
    }
    assert not any("no_budget" in each for each in reported)  # a child's warnings are reported with the child


def test_params_and_profile_of_a_sub_agent_are_checked(tmp_path: Path) -> None:
    child = agent(
        "params: {topic: {type: string}, size: {type: integer, default: 3}}\n"
        "input: '{{ topic }}{{ size }}'\nprofiles: {fast: {}}\n"
    )
    for params, expected in (
        ("params: {topic: cats}", []),
        ("params: {topic: cats, size: 5}, profile: fast", []),
        ("params: {«tpoic: cats}", ["unknown_param"]),
        ("params: {size: «big}", ["wrong_value"]),
    ):
        text = f"policy: {{default: allow}}\ntools: {{t: {{kind: agent, spec: c.yaml, {params}}}}}\n"
        assert reported(tmp_path, text, {"c.yaml": child}) == expected
    text = "policy: {default: allow}\ntools: {t: {kind: agent, spec: c.yaml, profile: slow}}\n"
    assert codes(tmp_path, text, {"c.yaml": child}) == ["spec.unknown_profile"]


def test_a_circular_schema_of_a_child_is_reported_once(tmp_path: Path) -> None:
    circular = "{$ref: '#/$defs/a', $defs: {a: {allOf: [{$ref: '#/$defs/a'}]}}}"
    child = agent(f"params: {{topic: {circular}}}\ninput: '{{{{ topic }}}}'\n")
    text = "policy: {default: allow}\ntools: {t: {kind: agent, spec: c.yaml, params: {topic: cats}}}\n"
    assert codes(tmp_path, text, {"c.yaml": child}) == ["spec.schema_ref"]


def test_number_of_sub_agents_is_limited(tmp_path: Path) -> None:
    def spec(count: int) -> str:
        tools = ", ".join(f"t{n}z: {{kind: agent, spec: c.yaml}}" for n in range(count))
        return agent(f"policy: {{default: allow}}\ntools: {{{tools}}}\n")

    write_project(
        tmp_path, {"c.yaml": agent(), "fits.yaml": spec(MAX_SUB_AGENTS), "over.yaml": spec(MAX_SUB_AGENTS + 1)}
    )
    assert validate_document(tmp_path / "fits.yaml") == []
    assert [problem.code for problem in validate_document(tmp_path / "over.yaml")] == ["spec.too_large"]
    write_project(
        tmp_path,
        {
            "twice.yaml": agent(
                "policy: {default: allow}\ntools: {p: {kind: agent, spec: ten.yaml}, q: {kind: agent, spec: ten.yaml}}"
            ),
            "ten.yaml": spec(MAX_SUB_AGENTS // 2),
        },
    )
    assert {problem.code for problem in validate_document(tmp_path / "twice.yaml")} == {"spec.too_large"}


# --- bounds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", MAX_KEYS)
def test_number_of_keys_of_a_section_is_limited(tmp_path: Path, key: str) -> None:
    value = {"tools": TOOL, "params": "{}", "sinks": "{kind: stdout}", "profiles": "{}"}[key]

    def section(count: int) -> str:
        entries = ", ".join(f"k{n}z: {value}" for n in range(count))
        used = "input: '" + "".join(f"{{{{ k{n}z }}}}" for n in range(count)) + "'\n" if key == "params" else ""
        return f"policy: {{default: allow}}\n{key}: {{{entries}}}\n{used}"

    assert codes(tmp_path, section(MAX_KEYS[key])) == []
    assert codes(tmp_path, section(MAX_KEYS[key] + 1)) == ["spec.out_of_range"]


def test_error_after_a_hundred_warnings_is_reported(tmp_path: Path) -> None:
    tools = ", ".join(f"k{n}z: {{kind: shell, argv: [x]}}" for n in range(150))
    problems = codes(tmp_path, f"policy: {{default: allow}}\ntools: {{{tools}}}\ninput: '{{{{ q }}}}'\n")
    assert problems.count("spec.no_description") == 150
    assert "spec.template_unknown_name" in problems


# --- settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        ("budgets.turns=3", None),
        ("budgets.turns=0", "out_of_range"),
        ("zzz=1", "unknown_key"),
        ("budgets", "setting"),
        ("=1", "setting"),
        ("a..b=1", "setting"),
        (".".join("a" * 1000) + "=1", "setting"),
        ("budgets.turns=[", "yaml_syntax"),
        ("model=null", "missing_key"),
        ("instructions={file: nothing.md}", "file_missing"),
        ("instructions={file: ../x.md}", "file_outside"),
        ("tools=5", "wrong_type"),
        ("tools=[5]", "wrong_type"),
        ("params.p={type: string}", None),
        ("model.options=" + "{a: " * 70 + "1" + "}" * 70, "depth_limit"),
        ("model.api_key=sk-ant-abcdefghijklmnop12345678", "wrong_text"),
    ],
)
def test_problems_of_settings(tmp_path: Path, setting: str, code: str | None) -> None:
    reported = [each.code for each in compile_problems(tmp_path, "", setting) if each.code != "spec.unused_param"]
    assert reported[:1] == ([f"spec.{code}"] if code else [])


def test_profiles_and_settings_are_applied_in_order(tmp_path: Path) -> None:
    path = write_project(tmp_path, {"spec.yaml": agent("profiles: {p: {budgets: {turns: 4}, input: Hi}}")})
    package = compile_spec(path, "p", ["budgets.turns=5"]).package
    assert package is not None
    assert (package.budgets.turns, package.input) == (5, "Hi")


@pytest.mark.parametrize(
    ("model", "place", "hint"),
    [
        ("{provider: opnai, name: m}", "4:19", 'did you mean "openai"?'),
        ("{provider: ollama, name: m}", "4:19", "for another server, use one of them with `base_url`"),
        ("{provider: openai, name: m, fallback: [antropic/x]}", "4:47", 'did you mean "anthropic"?'),
        ("{provider: openai, name: m, fallback: [{provider: gemni, name: x}]}", "4:58", 'did you mean "gemini"?'),
    ],
)
def test_unknown_provider_is_a_warning_at_its_place(tmp_path: Path, model: str, place: str, hint: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f'agentrun: "1"\nname: a\ninput: hi\nmodel: {model}\ninstructions: x\nbudgets: {{tokens: 1k}}\n')
    (problem,) = compile_spec(path).problems
    assert (problem.code, problem.severity) == ("spec.unknown_provider", "warning")
    assert str(problem.place).endswith(f":{place}")
    assert hint in (problem.hint or "")
