"""Specs with very many valid parts, and texts that could make a regular expression slow."""

import json
from pathlib import Path

import pytest

from agentrun.spec.problems import PROBLEM_CODES

from ..measured_commands import run
from ..projects import TOOL, agent, write_project
from .hostile_projects import Files, assert_refused, attack, codes, numbered

RULES = "tools: {t: %s}\npolicy:\n  default: allow\n  rules:\n"


def rules(*lines: str) -> str:
    return RULES % TOOL + "".join(f"    - {line}\n" for line in lines)


def condition(text: str) -> str:
    return rules(f"{{id: r, ask: t, when: {json.dumps(text)}}}")


def test_expensive_conditions_are_refused(tmp_path: Path) -> None:
    ones = "[" + ",".join(["1"] * 97) + "]"
    large = "[" + ",".join(["1"] * 3500) + "]"
    texts = [
        "(" * 4000 + "1" + ")" * 4000,
        "[" * 4000 + "]" * 4000,
        "1+" * 4000 + "1 == 1",
        "args" + ".a" * 4000,
        f"{ones}.map(x, {ones}.map(y, {large})).size() == 0",  # a gigabyte
        f"{ones}.all(x, !'a'.matches('(\\\\pL{{1,100}}){{1,' + string(x) + '0}}'))",  # five seconds
        "'a'.matches('" + "(\\\\pL{50}|b)" * 8 + "')",
        "args.x.matches(args.y)",
        "'" * 8191,
        "a||" * 2700 + "a",
        "args.zzz||" * 800 + "true",
        "true ||" * 1000,
        "x" * 9000,
    ]
    assert_refused(
        tmp_path,
        numbered(map(condition, texts)),
        "spec.condition",
        "spec.pattern",
        "spec.unknown_arg",
        "spec.too_large",
        "spec.out_of_range",
    )


def many_globs() -> str:
    """2,500 of them, each of which matches one of 250 tools."""
    tools = "".join(f"  a{n}z: {TOOL}\n" for n in range(250))
    lists = [",".join(f'"{"*" * stars}{n}z"' for n in range(250)) for stars in range(1, 11)]
    lines = "".join(f"    - {{id: r{number}, allow: [{globs}]}}\n" for number, globs in enumerate(lists))
    return f"tools:\n{tools}policy:\n  default: deny\n  rules:\n{lines}"


def long_conditions() -> str:
    text = json.dumps("true && " * 100 + "spend.turns > 1")
    return rules(*(f"{{id: r{n}, ask: t, when: {text}}}" for n in range(900)))


def many_types() -> str:
    """1,000 conditions about an argument that has another type in each of 200 tools."""
    kinds = ["string", "integer", "boolean", "number"]

    def schema(number: int) -> str:
        depth, kind = divmod(number, 4)
        return "{type: array, items: " * depth + f"{{type: {kinds[kind]}}}" + "}" * depth

    args = "args: {type: object, properties: {a: %s}}"
    tools = "".join(f"  t{n}: {TOOL[:-1]}, {args % schema(n % 40)}}}\n" for n in range(200))
    lines = "".join(f'    - {{id: r{n}, ask: "*", when: "has(args.a) && {n} > 0"}}\n' for n in range(1000))
    return f"tools:\n{tools}policy:\n  default: deny\n  rules:\n{lines}"


def many_paths() -> str:
    """Twenty thousand paths, for each of 250 tools."""
    args = "args: {type: object, additionalProperties: true}"
    tools = "".join(f"  t{n}: {TOOL[:-1]}, {args}}}\n" for n in range(250))
    text = "||".join(["args.b"] * 400)
    lines = "".join(f'    - {{id: r{n}, ask: "*", when: "{text}"}}\n' for n in range(40))
    return f"tools:\n{tools}policy:\n  default: deny\n  rules:\n{lines}"


def test_very_large_policies_are_refused(tmp_path: Path) -> None:
    names = ",".join(f"x{n}" for n in range(40))
    shared = ",".join(f"{{id: r%s{n}, ask: [{names}]}}" for n in range(300))
    part = f'agentrun: "1"\npolicy: {{rules: [{shared}]}}\n'
    parts = "policy: [{file: a.yaml}, {file: b.yaml}, {file: c.yaml}, {default: allow}]\n"
    attacks: dict[str, str | Files] = {
        "1,000 rules of 40 targets": rules(*(f"{{id: r{n}, ask: [{names}]}}" for n in range(1000))),
        "1,000 rules of 256 targets": rules(*(f"{{id: r{n}, ask: [{','.join(['t'] * 256)}]}}" for n in range(1000))),
        "a glob of many stars": rules(f'{{id: r, ask: "{"*a" * 40}*c"}}').replace("{t: ", "{" + "a" * 63 + "b: "),
        "1,000 unknown tools": rules(*(f"{{id: r{n}, ask: x{n}}}" for n in range(1000))),
        "20,000 settings": rules("{id: r, modify: t, set: {" + ",".join(f"a{n}: 1" for n in range(20_000)) + "}}"),
        "three files of rules": {
            "spec.yaml": agent(f"tools: {{t: {TOOL}}}\n{parts}"),
            **{f"{name}.yaml": part.replace("%s", name) for name in "abc"},
        },
    }
    assert_refused(
        tmp_path, attacks, "spec.too_large", "spec.unknown_tool", "spec.rule_never_matches", "spec.unknown_arg"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (many_globs(), "the policy has too many globs (2,500) for this many tools"),
        (long_conditions(), "all conditions together are longer than 131,072 characters"),
        (many_types(), "there are too many conditions about tools with different arguments"),
        (many_paths(), "there are too many conditions about tools with different arguments"),
    ],
    ids=["globs", "conditions", "types", "paths"],
)
def test_valid_but_slow_policies_are_refused(tmp_path: Path, text: str, message: str) -> None:
    ran = attack(tmp_path, {"wide": text})["wide"]
    assert (ran.code, codes(ran)) == (2, {"spec.too_large"})
    assert message in ran.err


def test_very_large_sections_are_refused(tmp_path: Path) -> None:
    attacks: dict[str, str | Files] = {
        "tools that are none": "tools:\n" + "".join(f" t{n}: 1\n" for n in range(20_000)),
        "many tools": "policy: {default: allow}\ntools:\n"
        + "".join(f" t{n}a: {{kind: shell, argv: [a]}}\n" for n in range(5_000)),
        "unknown keys": "".join(f"k{n}: 1\n" for n in range(20_000)),
        "unknown keys on one line": "model: {provider: p, name: m, "
        + ",".join(f"k{n}: 1" for n in range(15_000))
        + "}\n",
        "params": "params:\n" + "".join(f" t{n}a: {{type: string}}\n" for n in range(9_000)),
        "wrong names": "params: {" + ",".join(f"T{n}: {{type: string}}" for n in range(9_000)) + "}\n",
        "profiles": "profiles:\n" + "".join(f" p{n}: {{budgets: {{turns: 3}}}}\n" for n in range(6_000)),
        "sinks": "sinks: {" + ",".join(f"s{n}z: {{kind: stdout}}" for n in range(9_000)) + "}\n",
        "hooks": "hooks: [" + ",".join("{id: h, at: on_stop, call: 'm:f'}" for _ in range(256)) + "]\n",
        "redactions": "replay: {redact: [" + ",".join("{name: a}" for _ in range(256)) + "]}\n",
        "secrets": "model: {provider: p, name: m, options: {"
        + ",".join(f"a{n}: sk-ant-abcdefgh12345678{n}" for n in range(20_000))
        + "}}\n",
        "unknown keywords": "params: {p: {" + ",".join(f"z{n}: 1" for n in range(20_000)) + "}}\n",
    }
    allowed = [
        "wrong_type",
        "out_of_range",
        "unknown_key",
        "name",
        "too_large",
        "python",
        "duplicate_name",
        "redact",
        "secret",
        "json_schema",
    ]
    assert_refused(tmp_path, attacks, *(f"spec.{code}" for code in allowed))


def test_unclosed_openings_are_checked_in_linear_time(tmp_path: Path) -> None:
    """Each of these took minutes with a regular expression that looks for the end of what is opened."""
    tool = "policy: {default: allow}\nparams: {p: {type: string}}\ntools: {t: {kind: %s}}\n"
    attacks: dict[str, str | Files] = {
        "variables in a command": tool % ("shell, description: d, argv: [x], stdin: '" + "${" * 130_000 + "'"),
        "variables in a body": tool
        % ("http, description: d, url: 'https://a.example/', body: '" + "${" * 500_000 + "'"),
        "variables in a header": tool
        % ("http, description: d, url: 'https://a.example/', headers: {X: '" + "${" * 2000 + "'}"),
        "tags in a schema": tool
        % ("shell, description: d, argv: [x], args: {type: object, title: '" + "{{" * 500_000 + "'}"),
        "dots in an address": tool % ("http, description: d, url: 'https://" + "a." * 2000 + "'"),
        "stars in a path": "replay: {volatile: ['" + "*." * 120 + "']}\n",
    }
    for name, ran in attack(tmp_path, attacks).items():
        assert codes(ran) <= PROBLEM_CODES.keys(), name


def test_very_many_sub_agents_are_refused(tmp_path: Path) -> None:
    def fan(child: str, count: int = 200) -> str:
        return agent(
            "policy: {default: allow}\ntools:\n"
            + "".join(f"  t{n}z: {{kind: agent, spec: {child}}}\n" for n in range(count))
        )

    filler = "description: " + "x" * 4000 + "\n" + "".join(f"# {'y' * 1000}\n" for _ in range(800))
    attacks: dict[str, str | Files] = {
        "200 by 200 by 200": {
            "spec.yaml": fan("a.yaml"),
            "a.yaml": fan("b.yaml"),
            "b.yaml": fan("c.yaml"),
            "c.yaml": agent(),
        },
        "1,000": {"spec.yaml": fan("c.yaml", 1000), "c.yaml": agent()},
        "a circle of four, seen 200 times": {"spec.yaml": fan("a.yaml"), "a.yaml": fan("spec.yaml")},
        "large children": {"spec.yaml": fan("c.yaml"), "c.yaml": agent(filler)},
        "broken children": {"spec.yaml": fan("c.yaml"), "c.yaml": agent("".join(f"z{n}: 1\n" for n in range(500)))},
    }
    assert_refused(
        tmp_path,
        attacks,
        "spec.too_large",
        "spec.agent_cycle",
        "spec.agent_depth",
        "spec.out_of_range",
        "spec.unknown_key",
    )


def test_many_profiles_of_a_large_spec_are_refused(tmp_path: Path) -> None:
    profiles = "profiles: {" + ", ".join(f"p{n}: {{budgets: {{turns: {n + 1}}}}}" for n in range(60)) + "}\n"
    large = "".join(f"# {'x' * 1000}\n" for _ in range(900))
    prompt: Files = {"spec.yaml": agent(profiles + "instructions: {file: p.md}\n"), "p.md": "x" * 250_000}
    attacks: dict[str, str | Files] = {"a large spec": profiles + large, "a large prompt": prompt}
    assert_refused(tmp_path, attacks, "spec.too_large")


def test_hostile_set_options_are_refused(tmp_path: Path) -> None:
    """What the command line adds is bounded like what is in a file."""
    write_project(tmp_path, {"spec.yaml": agent()})
    settings = [
        ".".join("a" * 20_000) + "=1",
        "model.options=" + "[" * 20_000,
        "model.options=" + "{a: " * 65 + "1" + "}" * 65,
        "a=&a [*a]",
        "instructions={file: /etc/passwd}",
        "instructions={file: ../../../etc/passwd}",
        "tools=!!python/object/apply:os.system ['true']",
        "budgets.turns=1e999",
        "budgets.turns=-1",
        "profiles.x.y=1",
        "name=\x1b[2J",
        "=",
    ]
    for setting, ran in zip(
        settings, run([(tmp_path, ["compile", "spec.yaml", "--set", text]) for text in settings]), strict=True
    ):
        assert (ran.code, bool(codes(ran))) == (2, True), (setting[:40], ran.output)
        assert codes(ran) <= PROBLEM_CODES.keys()
        assert "\x1b" not in ran.output
        assert "root:" not in ran.output


def test_alias_bombs_and_deep_nesting_are_refused_in_any_section(tmp_path: Path) -> None:
    base = "params: {p: {type: object, properties: {x: &a {enum: [" + "1," * 900 + "1]}, "
    attacks: dict[str, str | Files] = {
        "aliases": base + ",".join(f"y{n}: *a" for n in range(101)) + "}}}\n",
        "grown": "model: {provider: p, name: m, options: {a: &a ["
        + "1," * 999
        + "1], b: &b ["
        + "*a," * 50
        + "*a], c: ["
        + "*b, " * 40
        + "*b]}}\n",
        "itself": "model: {provider: p, name: m, options: &a {a: *a}}\n",
        "deep": "model: {provider: p, name: m, options: " + "{a: " * 70 + "1" + "}" * 70 + "}\n",
    }
    assert_refused(tmp_path, attacks, "spec.alias_limit", "spec.depth_limit", "spec.too_large")
