"""Templates, environment references and literal secrets in every text of a spec."""

import base64
from pathlib import Path

import pytest

from agentrun.compiler.validate import validate_document

from ..measured_commands import run
from ..projects import agent, codes, find_problems, place, remove_marks, write_project

ALLOW = "policy: {default: allow}\n"
PARAMS = "params: {name: {type: string}, items: {type: array}}\n"


def http(fields: str) -> str:
    args = "args: {type: object, properties: {id: {type: string}}}"
    return f"{ALLOW}tools: {{t: {{kind: http, description: d, url: 'https://a.example/x', {args}, {fields}}}}}\n"


def shell(fields: str) -> str:
    args = "args: {type: object, properties: {id: {type: string}}}"
    return f"{ALLOW}tools: {{t: {{kind: shell, description: d, {args}, {fields}}}}}\n"


# --- templates ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "at", "code", "hint"),
    [
        ("Hello\n\n{{ nmae }}\n", "prompt.md:3:4", "template_unknown_name", 'did you mean "name"?'),
        ("{% for item in itmes %}{{ item }}{% endfor %}", "prompt.md:1:16", "template_unknown_name", '"items"?'),
        ("é {{ nmae }}", "prompt.md:1:6", "template_unknown_name", '"name"?'),
        ("a\r\nb {{ nmae }}\r\n", "prompt.md:2:6", "template_unknown_name", '"name"?'),
        ("\ufeff{{ nmae }}", "prompt.md:1:4", "template_unknown_name", '"name"?'),
        ("one\ntwo {{ name", "prompt.md:2:5", "template_syntax", "add `}}`"),
        ("{% if name %}\nx\n", "prompt.md:1:4", "template_syntax", "endif"),
        ("{{ name|uper }}", "prompt.md:1:9", "template_unknown_filter", '"upper"?'),
        ("{{ name.__class__ }}", "prompt.md:1:9", "template_forbidden", None),
        ('{{ name }}{{ items }}{% include "x" %}', "prompt.md:1:33", "file_missing", None),
        ("{% include name %}", "prompt.md:1:12", "template_forbidden", None),
    ],
)
def test_template_problem_points_into_the_prompt_file(
    tmp_path: Path, prompt: str, at: str, code: str, hint: str | None
) -> None:
    (problem,) = find_problems(tmp_path, PARAMS + "instructions: {file: prompt.md}\n", {"prompt.md": prompt})
    assert (problem.at, problem.code) == (at, f"spec.{code}")
    assert (hint or "") in (problem.hint or "")


STYLES = {
    "plain": ("Hello {{ nmae }}", "2:24"),
    "single": ("'It''s {{ nmae }}'", "2:25"),
    "double": ('"\\u00e9\\t{{ nmae }}"', "2:27"),
    "literal": ("|\n  Hello\n  {{ nmae }}\n", "4:6"),
    "folded": (">\n  Hello\n  you {{ nmae }}\n", "4:10"),
    "in a list": ("\n  - Hello\n  - x {{ nmae }}\n", "4:10"),
    "literal, deeper": ("|2\n    Hello\n      {{ nmae }}\n", "4:10"),
}


@pytest.mark.parametrize("style", STYLES)
def test_template_problem_points_into_every_yaml_style(tmp_path: Path, style: str) -> None:
    written, at = STYLES[style]
    (problem,) = find_problems(tmp_path, PARAMS + f"instructions: {written}\n")
    assert (problem.at, problem.code) == (f"spec.yaml:{at}", "spec.template_unknown_name")


@pytest.mark.parametrize(
    "text",
    [
        "input: '{{ «q }}'\n",
        "context: {compaction: {prompt: '{{ «q }}'}}\n",
        "guards: {nudge: '{{ «q }}'}\n",
        http("query: {x: '{{ «q }}'}"),
        http("headers: {X: '{{ args.«q }}'}"),
        http("body: {a: [{b: 'x{{ args.«q }}'}, '{{ args.id }}', 5]}"),
        shell("argv: [x, '{{ args.«q }}', '{{ «q }}']"),
        shell("argv: [x], stdin: '{{ args.«q }}'"),
        # not templates: text that a model or a person reads
        "description: '{{ q }}'\n",
        http("effect: read, result: \"a[?b=='{{ q }}']\""),
        shell("argv: [x], env: {A: '{{ q }}'}"),
    ],
)
def test_every_template_text_is_checked(tmp_path: Path, text: str) -> None:
    text, places = remove_marks(text)
    reported = find_problems(tmp_path, text)
    assert {problem.code for problem in reported} <= {"spec.template_unknown_name"}
    assert [problem.at for problem in reported] == [f"spec.yaml:{at}" for at in places]


def test_templates_may_use_params_or_arguments(tmp_path: Path) -> None:
    assert codes(tmp_path, PARAMS + "instructions: '{{ name }} {{ items|join }}'\n") == []
    assert codes(tmp_path, PARAMS + "instructions: '{{ name }}{{ items }}{{ args.id }}'\n") == [
        "spec.template_unknown_name"
    ]
    assert codes(tmp_path, shell("argv: [x, '{{ args.id }}', '{{ args }}']")) == []
    open_ended = "args: {type: object, additionalProperties: true}"
    assert (
        codes(
            tmp_path,
            f"{ALLOW}tools: {{t: {{kind: shell, description: d, argv: [x, '{{{{ args.any }}}}'], {open_ended}}}}}\n",
        )
        == []
    )


def test_unquoted_template_gets_a_hint_to_quote(tmp_path: Path) -> None:
    (problem,) = find_problems(tmp_path, "instructions: {{ name }}\n")
    assert (problem.at, problem.code, problem.hint) == ("spec.yaml:1:15", "spec.key", "quote the template")


# --- the environment ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("model: {provider: openai, name: m, base_url: 'https://${HOST}/v1'}\n", []),
        ("model: {provider: openai, name: m, base_url: '${URL}'}\n", []),
        ("model: {provider: openai, name: m, api_key: '${KEY}', headers: {X: 'a ${B} ${C}'}}\n", []),
        ("model: {provider: openai, name: m, fallback: [{provider: openai, name: n, headers: {X: '${B}'}}]}\n", []),
        (http("auth: {secret: '${TOKEN}'}, headers: {X: 'a ${B}'}"), []),
        (shell("argv: [x], env: {A: '${B}', C: 'd${E}f'}"), []),
        ("sinks: {s: {kind: http, url: '${URL}', headers: {X: '${B}'}, auth: {secret: '${C}'}}}\n", []),
        ("instructions: 'Write ${HOME} in scripts.'\n", []),
        (shell("argv: [x], effect: read") + "description: 'uses ${X}'\n", []),
        (shell("argv: [x, '${HOME}']"), ["env_here"]),
        (shell("argv: [x, 'a${HOME}b']"), ["env_here"]),
        (shell("argv: [x], stdin: '${TOKEN}'"), ["env_here"]),
        (shell("argv: [x], cwd: '${HOME}'"), ["env_here"]),
        (http("query: {k: '${KEY}'}"), ["env_here"]),
        (http("body: {k: ['${KEY}']}"), ["env_here"]),
        (f"{ALLOW}tools: {{t: {{kind: mcp, command: [x, '${{KEY}}']}}}}\n", ["env_here"]),
        ("model: {provider: openai, name: m, options: {user: '${USER}'}}\n", ["env_here"]),
        ("sinks: {s: {kind: file, path: '${HOME}'}}\n", ["env_here"]),
        (shell("argv: [x]") + "", []),
        ("model: {provider: openai, name: m, headers: {X: '${1A}'}}\n", ["env_name"]),
        ("model: {provider: openai, name: m, headers: {X: '${}'}}\n", ["env_name"]),
        ("model: {provider: openai, name: m, headers: {X: '${A B}'}}\n", ["env_name"]),
        ("model: {provider: openai, name: m, headers: {X: '${A'}}\n", ["env_name"]),
        (http("headers: {X: '${A} {{ args.id }}'}"), ["mixed"]),
        (http("headers: {X: '{{ args.id }}'}"), []),
    ],
)
def test_environment_references_are_allowed_only_in_some_texts(tmp_path: Path, text: str, reported: list[str]) -> None:
    assert codes(tmp_path, text) == [f"spec.{code}" for code in reported]


def test_alias_of_an_environment_reference_is_checked(tmp_path: Path) -> None:
    assert codes(tmp_path, shell("env: {A: &token '${TOKEN}'}, argv: [x, *token]")) == ["spec.env_here"]


def test_shell_style_param_gets_a_hint(tmp_path: Path) -> None:
    (problem,) = find_problems(
        tmp_path, "instructions: 'Hello ${name} and ${HOME}'\nparams: {name: {type: string}}\ninput: '{{ name }}'\n"
    )
    assert (problem.at, problem.code, problem.hint) == (
        "spec.yaml:1:22",
        "spec.env_here",
        "to use the param write {{ name }}",
    )


# --- secrets ------------------------------------------------------------------------------------------------

KEY = "sk-ant-" + "Qw9xZt3LbN7vRk2P" * 2
PEM = "-----BEGIN PRIVATE KEY-----\n" + base64.b64encode(bytes(range(48))).decode() + "\n-----END PRIVATE KEY-----"
RANDOM = "9f3kQz81LmXw72Pv"

SHARED = f'agentrun: "1"\nbudgets: {{tokens: 1}} # «{KEY}\n'
ESCAPED_KEY = 'model: {provider: openai, name: m, options: {«"sk\\u002dant\\u002d' + KEY[7:] + '": 1}}\n'
SECRETS: dict[str, tuple[dict[str, str], str]] = {
    "a description": ({"spec.yaml": f"description: My key is «{KEY}\n"}, KEY),
    "a header": ({"spec.yaml": f"model: {{provider: openai, name: m, headers: {{X: 'Bearer «{KEY}'}}}}\n"}, KEY),
    "a named header": (
        {"spec.yaml": f"model: {{provider: openai, name: m, headers: {{API-Key: «{RANDOM}}}}}\n"},
        RANDOM,
    ),
    "a key": ({"spec.yaml": f"model: {{provider: openai, name: m, options: {{«{KEY}: 1}}}}\n"}, KEY),
    "a comment": ({"spec.yaml": f"# old key: «{KEY}\n"}, KEY),
    "a default": ({"spec.yaml": f"params: {{api_key: {{type: string, default: «{KEY}}}}}\n"}, KEY),
    "an environment": ({"spec.yaml": shell(f"argv: [x], env: {{GITHUB_TOKEN: «{RANDOM}}}")}, RANDOM),
    "a url": ({"spec.yaml": http("").replace("//a.", f"//u:«{RANDOM}@a.")}, RANDOM),
    "a prompt file": ({"spec.yaml": "instructions: {file: p.md}\n", "p.md": f"Hello\nuse «{KEY} please"}, KEY),
    "a shared file": ({"spec.yaml": "budgets: {file: b.yaml}\n", "b.yaml": SHARED}, KEY),
    "a schema file": ({"spec.yaml": "params: {p: {file: s.json}}\n", "s.json": f'{{"default": "«{KEY}"}}'}, KEY),
    "a private key": ({"spec.yaml": "instructions: |\n  «" + PEM.replace("\n", "\n  ") + "\n"}, PEM.split("\n")[1]),
    "an escaped text": ({"spec.yaml": 'description: "«sk\\u002dant\\u002d' + KEY[7:] + '"\n'}, KEY[7:]),
    "an escaped key": ({"spec.yaml": ESCAPED_KEY}, KEY[7:]),
    "a broken document": ({"spec.yaml": f"zzz: «{KEY}\n"}, KEY),
    "a broken tool": ({"spec.yaml": f"tools: {{t: {{kind: shel, token: «{RANDOM}}}}}\n"}, RANDOM),
}  # fmt: skip


COMMANDS = (["validate"], ["validate", "--json"], ["compile"], ["render"], ["lock"], ["run"])


@pytest.mark.parametrize("way", SECRETS)
def test_literal_secret_is_reported_at_its_place(tmp_path: Path, way: str) -> None:
    files, _ = SECRETS[way]
    texts = {name: remove_marks(text) for name, text in files.items()}
    expected = [f"{name}:{at}" for name, (_, places) in texts.items() for at in places]
    write_project(tmp_path, {name: agent(text) if name == "spec.yaml" else text for name, (text, _) in texts.items()})
    reported = [problem for problem in validate_document(tmp_path / "spec.yaml") if problem.code == "spec.secret"]
    assert [place(problem, tmp_path) for problem in reported] == expected


def test_literal_secret_is_in_no_output(tmp_path: Path) -> None:
    ways = list(SECRETS.items())
    for way, (files, _) in ways:
        (tmp_path / way).mkdir()
        write_project(
            tmp_path / way, {name: agent(text) if name == "spec.yaml" else text for name, text in marked_off(files)}
        )
    cases = [(tmp_path / way, [*command, "spec.yaml"]) for way, _ in ways for command in COMMANDS]
    for (folder, args), ran in zip(cases, run(cases), strict=True):
        _, value = SECRETS[folder.name]
        assert value not in ran.output, (folder.name, args)
        assert "spec.secret" in ran.output or args[0] == "lock"
        assert "Traceback" not in ran.output


def marked_off(files: dict[str, str]) -> list[tuple[str, str]]:
    return [(name, remove_marks(text)[0]) for name, text in files.items()]


OTHER_CREDENTIALS = [
    f"model: {{provider: openai, name: m, api_key: {RANDOM}}}\n",
    f"model: {{provider: openai, name: m, api_key: [{RANDOM}]}}\n",
    f"model: {{provider: openai, name: m, apikey: {RANDOM}}}\n",
    f"tools: {{t: {{kind: http, url: 'https://a.example', auth: {{secret: {RANDOM}}}}}}}\n",
    f"params: {{token: {{type: integer, default: {KEY}}}}}\n",
    f"description: {KEY}: {KEY}\n",
    f"name: '{KEY}\n",
    f"name: {KEY}\n",
    f"{KEY}: 1\n",
    f"budgets: {{turns: {KEY}}}\n",
    f"policy: {{rules: [{{id: {KEY}, allow: '{KEY}', when: '{KEY} +'}}]}}\n",
    f"instructions: {{file: '{KEY}.md'}}\n",
    f"tools: {{t: {{kind: agent, spec: '{KEY}.yaml'}}}}\n",
    f"params: {{p: {{pattern: '({KEY}'}}}}\n",
    f"params: {{p: {{$ref: '#/{KEY}'}}}}\n",
    f"params: {{p: {{type: {KEY}}}}}\n",
    f"input: '{{{{ \"{KEY}\"|nothing }}}}'\n",
    f"profiles: {{p: {{{KEY}: 1}}}}\n",
]


def test_other_problems_do_not_show_a_secret(tmp_path: Path) -> None:
    for number, text in enumerate(OTHER_CREDENTIALS):
        (tmp_path / str(number)).mkdir()
        write_project(tmp_path / str(number), {"spec.yaml": agent(text)})
    cases = [
        (tmp_path / str(n), ["validate", "spec.yaml", *options])
        for n in range(len(OTHER_CREDENTIALS))
        for options in ([], ["--json"])
    ]
    for (folder, _), ran in zip(cases, run(cases), strict=True):
        assert ran.code == 2
        assert KEY not in ran.output, OTHER_CREDENTIALS[int(folder.name)]
        assert RANDOM not in ran.output, OTHER_CREDENTIALS[int(folder.name)]


@pytest.mark.parametrize(
    "text",
    [
        "description: use sk-your-key-here-xxxxxxxxxxxxxxxx\n",
        "model: {provider: openai, name: m, api_key: '${ANTHROPIC_API_KEY}'}\n",
        "# sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n",
        "instructions: 'The order id is 8f14e45f-ceea-467f-9b8e-1a2b3c4d5e6f.'\n",
        "params: {token: {type: string, default: nothing}}\ninput: '{{ token }}'\n",
    ],
)
def test_texts_that_look_like_secrets_are_allowed(tmp_path: Path, text: str) -> None:
    assert codes(tmp_path, text) == []
