"""THREATS rows 9 to 11, 13, 14, 16 and 22, hostile schemas, references, modules, numbers and packages."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ..measured_commands import MIB, SCRIPT, run
from ..projects import agent, write_project
from .hostile_projects import Files, assert_refused, attack, codes, numbered


@pytest.mark.parametrize(
    ("planted", "seen"),
    [
        ("bytearray(65 * 1024 * 1024)", "memory"),
        ("all(map(lambda _: True, range(10_000_000)))", "steps"),
    ],
)
def test_measurement_detects_excess_memory_and_steps(tmp_path: Path, planted: str, seen: str) -> None:
    """The twin of all the others: a command that takes too much is noticed."""
    greedy = SCRIPT.replace("result = command(folder, args)", f"result = ({planted}, command(folder, args))[1]")
    with pytest.raises(AssertionError, match=seen):
        attack(tmp_path, {seen: ""}, script=greedy)


# --- A. schemas ---------------------------------------------------------------------------------------------

SHELL = "policy: {default: allow}\ntools: {t: {kind: shell, description: d, argv: [x], %s}}\n"
SCHEMA_PLACES = [
    "params: {p: %s}\n",
    "output: {schema: %s}\n",
    SHELL % "args: %s",
    SHELL % "actions: {a: %s}",
    "profiles: {q: {output: {schema: %s}}}\n",
]


def schemas(*given: Any) -> dict[str, str | Files]:
    """Each schema at each place where one can stand, and in a file."""
    found: dict[str, str | Files] = {}
    for number, schema in enumerate(given):
        text = json.dumps({"type": "object", **schema})
        for place, template in enumerate(SCHEMA_PLACES):
            found[f"{number} at {place}"] = template % text
        found[f"{number} in a file"] = {"spec.yaml": agent("output: {schema: {file: s.json}}"), "s.json": text}
    return found


def test_9_schema_references_to_files_and_hosts_are_refused(tmp_path: Path) -> None:
    references = ["file:///etc/passwd", "http://169.254.169.254/latest/", "s.json", "data:,{}", "//evil.example/x"]
    assert_refused(tmp_path, schemas(*({"$ref": reference} for reference in references)), "spec.schema_ref")


def test_10_circular_and_growing_schemas_are_refused(tmp_path: Path) -> None:
    doubling = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(20)}
    many = {f"p{n}": {"$ref": "#/$defs/large"} for n in range(2000)}
    given = [
        {"properties": {"a": {"$ref": "#"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"$ref": "#/$defs/a0", "$defs": {**doubling, "a20": {}}},
        {"properties": many, "$defs": {"large": {"enum": list(range(10_000))}}},
        {"properties": many, "$defs": {"large": {"description": "x" * 400_000}}},
        {"items": {"$ref": "#/items/" + "9" * 5000}},
    ]
    assert_refused(tmp_path, schemas(*given), "spec.schema_ref")


def test_11_unsupported_or_heavy_patterns_are_refused(tmp_path: Path) -> None:
    bad = ["(?=a)", "(a)\\1", "(?<!x)y", "((a{100}){100}){100}", "\\pL{1000}", "(" * 900]
    found = schemas(*({"properties": {"a": {"pattern": pattern}}} for pattern in bad))
    found |= schemas(*({"patternProperties": {pattern: True}} for pattern in bad[:3]))
    for number, pattern in enumerate(bad):
        text = json.dumps(pattern)
        found[f"{number} mask"] = f"policy: {{rules: [{{id: r, on: output, modify: '*', mask: [{text}]}}]}}\n"
        found[f"{number} redact"] = f"replay: {{redact: [{{name: r, pattern: {text}}}]}}\n"
    assert_refused(tmp_path, found, "spec.pattern", "spec.json_schema")


def test_11_many_heavy_patterns_together_are_refused(tmp_path: Path) -> None:
    """Each is fine; together they would take a minute and gigabytes."""
    heavy = {f"a{n}": {"pattern": f"^[\\pL]{{{20 + n % 20}}}x{n}$"} for n in range(2000)}
    keys = {f"^[\\pL]{{{20 + n % 20}}}x{n}$": True for n in range(2000)}
    assert_refused(tmp_path, schemas({"properties": heavy}, {"patternProperties": keys}), "spec.too_large")


def test_11_default_is_checked_against_a_catastrophic_pattern(tmp_path: Path) -> None:
    text = json.dumps({"type": "string", "pattern": "^(a+)+$", "default": "a" * 100_000 + "!"})
    assert_refused(tmp_path, {"default": f"params: {{p: {text}}}\ninput: '{{{{ p }}}}'\n"}, "spec.param_default")


# --- A. files -----------------------------------------------------------------------------------------------

REFERENCES = {
    "instructions": "instructions: {file: %s}\n",
    "one of the instructions": "instructions: [x, {file: %s}]\n",
    "input": "input: {file: %s}\n",
    "compaction prompt": "context: {compaction: {prompt: {file: %s}}}\n",
    "tools": "tools: {file: %s}\n",
    "policy": "policy: [{file: %s}]\n",
    "budgets": "budgets: {file: %s}\n",
    "param schema": "params: {p: {file: %s}}\n",
    "args schema": SHELL % "args: {file: %s}",
    "action schema": SHELL % "actions: {a: {file: %s}}",
    "output schema": "output: {schema: {file: %s}}\n",
    "sub-agent": "policy: {default: allow}\ntools: {t: {kind: agent, spec: %s}}\n",
    "profile": "profiles: {q: {instructions: {file: %s}}}\n",
}
OUTSIDE = [
    "../../.ssh/id_rsa",
    "../outside.yaml",
    "/etc/passwd",
    "C:\\\\Windows\\\\win.ini",
    "..\\\\outside.yaml",
    "sub/../../outside.yaml",
    "link.yaml",
    "folder/outside.yaml",
    "chain.yaml",
]
UNREADABLE_PATHS = [
    "nothing\\0.yaml",
    "file:///etc/passwd",
    "sub",
    "pipe",
    "~/.ssh/id_rsa",
    "sub/",
    ".",
    "/dev/zero",
    "loop",
]


def hostile_project(folder: Path) -> None:
    """A project with every kind of way out."""
    (folder.parent / "outside.yaml").write_text("agentrun: CONTENT-OF-IT\n")
    (folder / "sub").mkdir()
    (folder / "link.yaml").symlink_to("../outside.yaml")
    (folder / "folder").symlink_to("..", target_is_directory=True)
    (folder / "chain.yaml").symlink_to("link.yaml")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")


@pytest.mark.parametrize("kind", REFERENCES)
def test_13_every_kind_of_reference_stays_inside(tmp_path: Path, kind: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    hostile_project(project)
    references = OUTSIDE + UNREADABLE_PATHS
    files: Files = {f"s{n}.yaml": agent(REFERENCES[kind] % f'"{ref}"') for n, ref in enumerate(references)}
    write_project(project, files)
    results = run([(project, ["validate", name]) for name in files])
    for reference, ran in zip(references, results, strict=True):
        expected = (
            {"spec.file_outside"}
            if reference in OUTSIDE
            else {"spec.file_missing", "spec.file_unreadable", "spec.file_outside", "spec.file_hidden"}
        )
        assert codes(ran) <= expected, (reference, ran.output)
        assert codes(ran), reference
        assert "CONTENT-OF-IT" not in ran.output
        assert "root:" not in ran.output
        assert str(tmp_path) not in ran.output


def test_13_python_modules_stay_inside(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "outside.py").write_text("def f():\n    'CONTENT-OF-IT'\n")
    (project / "link.py").symlink_to("../outside.py")
    (project / "folder").symlink_to("..", target_is_directory=True)
    os.mkfifo(project / "pipe.py")
    calls = ["link:f", "folder.outside:f", "pipe:f", "etc.passwd:f"]
    files: Files = {
        f"s{n}.yaml": agent(f"policy: {{default: allow}}\ntools: {{t: {{kind: python, call: '{call}'}}}}\n")
        for n, call in enumerate(calls)
    }
    write_project(project, files)
    for ran in run([(project, ["validate", name]) for name in files]):
        assert codes(ran) <= {"spec.file_outside", "spec.file_unreadable", "spec.python"}
        assert codes(ran)
        assert "CONTENT-OF-IT" not in ran.output


def test_13_total_size_of_referenced_files_is_limited(tmp_path: Path) -> None:
    large, wide = "x" * 1_000_000, json.dumps({"type": "object", "enum": list(range(90_000))})
    names = "".join(f" t{n}z: {{kind: shell, argv: [x], args: {{file: s.json}}}}\n" for n in range(200))
    spec = agent(f"policy: {{default: allow}}\ntools:\n{names}")
    many = agent(
        "".join(f"z{n}: 1\n" for n in range(5)) + "instructions: [" + "{file: p.md}, " * 63 + "{file: p.md}]\n"
    )
    attacks: dict[str, str | Files] = {
        "a large prompt": {"spec.yaml": agent("instructions: {file: p.md}"), "p.md": large},
        "a large prompt 64 times": {"spec.yaml": many, "p.md": large},
        "wide characters": {"spec.yaml": many, "p.md": "é😀" + large[:900_000]},
        "a large schema 200 times": {"spec.yaml": spec, "s.json": json.dumps({"type": "object", "title": large})},
        "a wide schema 200 times": {"spec.yaml": spec, "s.json": wide},
        "too large": {"spec.yaml": agent("instructions: {file: p.md}"), "p.md": "x" * (MIB + 1)},
    }
    assert_refused(tmp_path, attacks, "spec.too_large", "spec.out_of_range", "spec.unknown_key")


# --- A. python ----------------------------------------------------------------------------------------------


def python_project(call: str, source: str = "", extra: str = "") -> Files:
    text = f'policy: {{default: allow}}\ntools: {{t: {{kind: python, call: "{call}"{extra}}}}}\n'
    trap = "open('imported', 'w').close()\n"
    return {"spec.yaml": agent(text), "trap.py": trap + source, "os.py": trap + "def system(a: str): pass\n"}


def test_14_functions_outside_the_project_are_refused(tmp_path: Path) -> None:
    calls = [
        "os:system",
        "builtins:eval",
        "builtins:exec",
        "subprocess:run",
        "agentrun.cli:main",
        "yaml:load",
        "trap:nothing",
    ]
    assert_refused(tmp_path, {call: python_project(call) for call in calls}, "spec.python")
    assert not list(tmp_path.rglob("imported"))
    assert not list(tmp_path.rglob("__pycache__"))


def test_14_hostile_python_sources_are_refused(tmp_path: Path) -> None:
    sources = {
        "statements": "x;" * 500_000,
        "an f-string": 'x=f"' + "{x}" * 80_000 + '"',
        "attributes": "a" + ".b" * 400_000,
        "signs": "-" * 100_000 + "1",
        "as many as allowed": "x\n" * 19_000 + "return\n",
        "a deep sum": "x = 1" + "+1" * 19_000,
        "brackets": "(" * 100_000,
        "a dictionary": "{" + "0:0," * 200_000 + "}",
        "parameters": "def f(" + ",".join(f"a{n}: int" for n in range(60_000)) + "): pass",
        "an annotation": "def f(a: " + "list[" * 190 + "int" + "]" * 190 + "): 'd'",
        "a novel": "def f(a: int):\n    '" + "x" * 900_000 + "'\n",
        "a number": "def f(a: Literal[" + "9" * 4000 + "]):\n    'd'\n",
        "half a character": 'def f(a: Literal["\\ud800"]):\n    "d"\n',
    }
    assert_refused(
        tmp_path, {name: python_project("trap:f", source) for name, source in sources.items()}, "spec.python"
    )


def test_14_very_many_modules_are_refused(tmp_path: Path) -> None:
    tools = ", ".join(f't{n}z: {{kind: python, call: "m{n}:f"}}' for n in range(200))
    files: Files = {f"m{n}.py": f"x{n} = 1\n" + "y = 1\n" * 5000 + "def f():\n    'd'\n" for n in range(200)}
    spec: Files = {"spec.yaml": agent(f"policy: {{default: allow}}\ntools: {{{tools}}}\n"), **files}
    assert_refused(tmp_path, {"many": spec}, "spec.too_large")


# --- A. numbers ---------------------------------------------------------------------------------------------


def test_16_invalid_budgets_are_refused(tmp_path: Path) -> None:
    values = [
        "-1",
        "0",
        "nan",
        ".nan",
        ".inf",
        "-.inf",
        "1e999",
        "1e-999",
        "012",
        "1:30",
        "1_000",
        "99999999999999999999",
        "true",
        "null",
        "[1]",
        "'1'",
        "1e6.5",
    ]
    fields = ["turns", "tokens", "cost"]
    texts = [f"budgets: {{{field}: {value}}}\n" for field in fields for value in values]
    allowed = ["number", "out_of_range", "wrong_text", "wrong_type", "no_budget", "no_price"]
    assert_refused(tmp_path, numbered(texts), *(f"spec.{code}" for code in allowed))


def test_16_an_absent_budget_is_a_warning_and_twenty_turns(tmp_path: Path) -> None:
    ran = attack(tmp_path, {"absent": "budgets: {}\n"})["absent"]
    assert (ran.code, codes(ran)) == (0, set())
    assert "spec.no_budget  warning: the only limit on what a run may spend is 20 turns" in ran.err


# --- C. packages --------------------------------------------------------------------------------------------


def test_22_hostile_packages_are_refused(tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.mkdir()
    write_project(good, {"spec.yaml": agent()})
    (made,) = run([(good, ["compile", "spec.yaml", "-o", "package.json"])])
    assert made.code == 0, made.err
    data = json.loads((good / "package.json").read_text())

    def packed(value: Any) -> bytes:
        return (json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n").encode()

    assert packed(data) == (good / "package.json").read_bytes()
    agent_of = data["agent"]
    attacks: dict[str, bytes] = {
        "a wrong fingerprint": packed({**data, "fingerprint": "sha256:" + "0" * 64}),
        "a changed prompt": packed({**data, "agent": {**agent_of, "instructions": ["obey"]}}),
        "another version": packed({**data, "agentrun_package": "2"}),
        "an extra section": packed({**data, "agent": {**agent_of, "extra": 1}}),
        "an extra key": packed({**data, "extra": 1}),
        "a section less": packed({**data, "sections": {}}),
        "100 MB of text": b'{"agent":"' + b"x" * 100_000_000 + b'"}',
        "not canonical": json.dumps(data).encode(),
        "a second line": packed(data) + b"{}\n",
        "NaN": b'{"agentrun_package":NaN}\n',
        "deep": b'{"agentrun_package":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
        "a large number": b'{"agentrun_package":' + b"9" * 5000 + b"}\n",
        "half a character": b'{"agentrun_package":"\\ud800"}\n',
        "terminal control": b'{"agentrun_package":"\x1b[2J"}\n',
        "a duplicate key": packed(data).replace(b'"fingerprint"', b'"fingerprint":1,"fingerprint"', 1),
        "an archive": b"PK\x03\x04" + b"\0" * 1000,
        "nothing": b"",
        "a list": b"[]\n",
    }
    projects: dict[str, str | Files] = {name: {"package.json": content} for name, content in attacks.items()}
    for name, ran in attack(tmp_path, projects, "validate", "package.json").items():
        assert codes(ran) <= {"package.invalid", "package.fingerprint_mismatch"}, (name, ran.output)
        assert (ran.code, bool(codes(ran))) == (2, True), name
