"""Semantic checks of each kind of tool."""

from pathlib import Path

import pytest

from ..projects import codes, find_problems, remove_marks

ARGS = "{type: object, properties: {a: {type: string}}}"


def tools(text: str) -> str:
    return f"policy: {{default: allow}}\ntools: {{{text}}}\n"


def reported(folder: Path, text: str) -> list[tuple[str, str, str | None]]:
    """Code, message and hint of what is wrong with a tool; « marks the place."""
    text, places = remove_marks(tools(text))
    problems = find_problems(folder, text)
    assert [problem.at for problem in problems] == [f"spec.yaml:{at}" for at in places]
    return [(problem.code.removeprefix("spec."), problem.message, problem.hint) for problem in problems]


# --- addresses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "https://shop.example",
        "http://shop.example/",
        "https://shop.example:8443/a/b?c=d",
        "https://shop.example/{{ args.a }}/x?y={{ args.a }}",
        "https://[2001:db8::1]:8080/x",
        "https://127.0.0.1/",
        "${SHOP_URL}",
        "${SHOP_URL}/orders/{{ args.a }}",
        "https://${SHOP_HOST}/orders",
    ],
)
def test_valid_url_has_no_problem(tmp_path: Path, url: str) -> None:
    tool = f"t: {{kind: http, description: d, url: '{url}', private_network: true, args: {ARGS}}}"
    assert codes(tmp_path, tools(tool)) == []


@pytest.mark.parametrize(
    "url",
    [
        "shop.example/orders",
        "ftp://shop.example/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https://",
        "https:///orders",
        "https://user:pw@shop.example/",
        "https://shop.example@evil.example/",
        "https://{{ args.a }}/orders",
        "https://{{ args.a }}.shop.example/",
        "https://shop.example{{ args.a }}/",
        "{{ args.a }}",
        "https://${HOST}@evil.example/",
        "https://${HOST}.evil.example/",
        "https://${HOST}:80/",
        "https://shop.example\\@evil.example/",
        "https://shop.example#@evil.example/",
        "https://shop.example/a#b",
        "https://shop.example/{% if args.a %}x{% endif %}",
        "https://shop.example/?{{ args.a }}=1",
        "https://shop.example/?x=1&{{ args.a }}",
        "https://shop.example/a b",
        "https://shöp.example/",
        "https://shop.example/a\nb",
        "https://shop.example:123456/",
        " https://shop.example/",
        "//shop.example/",
    ],
)
def test_invalid_url_is_reported(tmp_path: Path, url: str) -> None:
    written = url.replace("\\", "\\\\").replace("\n", "\\n")
    found_codes = codes(tmp_path, tools(f't: {{kind: http, description: d, url: "{written}", args: {ARGS}}}'))
    assert "spec.url" in found_codes
    assert set(found_codes) <= {"spec.url", "spec.secret"}


@pytest.mark.parametrize(
    "text",
    [
        "model: {provider: openai, name: m, base_url: 'ftp://x'}",
        "model: {provider: openai, name: m, fallback: [{provider: openai, name: n, base_url: 'x'}]}",
        "sinks: {s: {kind: http, url: 'x'}}",
        "policy: {default: allow}\ntools: {t: {kind: mcp, url: 'x'}}",
    ],
)
def test_invalid_url_of_models_sinks_and_servers_is_reported(tmp_path: Path, text: str) -> None:
    assert codes(tmp_path, text) == ["spec.url"]


# --- arguments ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (f"args: {ARGS}", []),
        ("args: {type: object}", []),
        ("actions: {get: {type: object}, put: {type: object, properties: {a: {type: string}}}}", []),
        ("args: «{type: string}", ["args"]),
        ("args: «{}", ["args"]),
        ("args: «{type: [object, 'null']}", ["args"]),
        ("args: {type: object, properties: {a: {type: «strng}}}", ["json_schema"]),
        ("actions: {get: «{type: string}}", ["args"]),
        (f"args: {ARGS}, «actions: {{get: {{type: object}}}}", ["args"]),
        ("args: {type: object, required: [a], «requird: [a]}", ["json_schema"]),
    ],
)
def test_problems_of_declared_arguments(tmp_path: Path, fields: str, expected: list[str]) -> None:
    assert [
        code for code, *_ in reported(tmp_path, f"t: {{kind: shell, description: d, argv: [x], {fields}}}")
    ] == expected


@pytest.mark.parametrize(
    ("schema", "known"),
    [
        ("{type: object, properties: {a: {}}}", True),
        ("{type: object, properties: {a: {}}, additionalProperties: false}", True),
        ("{type: object, properties: {a: {}}, additionalProperties: true}", False),
        ("{type: object, properties: {a: {}}, additionalProperties: {type: string}}", False),
        ("{type: object, properties: {a: {}}, patternProperties: {b: {}}}", False),
        ("{type: object, allOf: [{properties: {b: {}}}]}", False),
        ("{type: object, $ref: '#/$defs/d', $defs: {d: {properties: {b: {}}}}}", False),
    ],
)
def test_template_arguments_are_checked_if_the_schema_is_closed(tmp_path: Path, schema: str, known: bool) -> None:
    text = tools(f"t: {{kind: shell, description: d, argv: [x, '{{{{ args.zzz }}}}'], args: {schema}}}")
    assert codes(tmp_path, text) == (["spec.template_unknown_name"] if known else [])


def test_templates_of_actions_may_use_fields_of_every_action(tmp_path: Path) -> None:
    actions = "actions: {get: {type: object, properties: {a: {}}}, put: {type: object, properties: {b: {}}}}"
    argv = "argv: [x, '{{ args.action }}{{ args.a }}{{ args.b }}']"
    fine = f"t: {{kind: shell, description: d, {argv}, {actions}}}"
    assert codes(tmp_path, tools(fine)) == []
    assert codes(tmp_path, tools(fine.replace("args.b", "args.c"))) == ["spec.template_unknown_name"]


def test_template_of_a_tool_without_arguments_has_no_fields(tmp_path: Path) -> None:
    assert codes(tmp_path, tools("t: {kind: shell, description: d, argv: [x, '{{ args.a }}']}")) == [
        "spec.template_unknown_name"
    ]


# --- commands and servers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("argv: [ls]", []),
        (f"argv: [ls, '{{{{ args.a }}}}'], args: {ARGS}, cwd: sub/folder", []),
        (f"argv: [«'{{{{ args.a }}}}'], args: {ARGS}", ["argv"]),
        (f"argv: [«'x{{{{ args.a }}}}', y], args: {ARGS}", ["argv"]),
        ("argv: [«'git log', x]", ["argv"]),
        ("argv: ['/opt/my tools/x']", []),
        ("argv: [x], cwd: «/tmp", ["path"]),
        ("argv: [x], cwd: «../up", ["path"]),
        ("argv: [x], cwd: «a/../../b", ["path"]),
        ("argv: [x], cwd: «'C:\\x'", ["path"]),
        ("argv: [x], cwd: «'a\\b'", ["path"]),
        ('argv: [x], cwd: «"a\\0b"', ["path"]),
        ("argv: [x], cwd: .", []),
    ],
)
def test_problems_of_shell_commands(tmp_path: Path, fields: str, expected: list[str]) -> None:
    assert [code for code, *_ in reported(tmp_path, f"t: {{kind: shell, description: d, {fields}}}")] == expected


@pytest.mark.parametrize(
    ("tool", "messages"),
    [
        ("t: {kind: mcp, command: [x], env: {A: b}}", []),
        ("t: {kind: mcp, url: 'https://a.example', headers: {A: b}}", []),
        ("«t: {kind: mcp}", ["an MCP server needs either `command` or `url`"]),
        ("«t: {kind: mcp, command: [x], url: 'https://a.example'}", ["an MCP server needs either"]),
        ("t: {kind: mcp, url: 'https://a.example', «env: {A: b}}", ["`env` works only for a server with `command`"]),
        ("t: {kind: mcp, command: [x], «headers: {A: b}}", ["`headers` works only for a server with `url`"]),
    ],
)
def test_problems_of_mcp_servers(tmp_path: Path, tool: str, messages: list[str]) -> None:
    problems = reported(tmp_path, tool)
    assert len(problems) == len(messages)
    for (code, message, hint), part in zip(problems, messages, strict=True):
        assert (code, part in message, hint is not None) == ("mcp", True, True)


@pytest.mark.parametrize(
    ("tool", "warned"),
    [
        ("«t: {kind: shell, argv: [x]}", True),
        ("«t: {kind: http, url: 'https://a.example'}", True),
        ("t: {kind: http, url: 'https://a.example', description: d}", False),
        ("t: {kind: mcp, command: [x]}", False),  # its tools say themselves what they do
    ],
)
def test_missing_description_is_a_warning(tmp_path: Path, tool: str, warned: bool) -> None:
    assert [code for code, *_ in reported(tmp_path, tool)] == (["no_description"] if warned else [])


# --- headers and hosts --------------------------------------------------------------------------------------

HTTP = "kind: http, description: d, url: 'https://shop.example:8443/a'"


@pytest.mark.parametrize(
    "more",
    [
        "headers: {X-A: plain, X-B: '{{ args.a }}', X-C: '${NAME}'}, auth: {secret: '${T}'}",
        "auth: {secret: '${T}', header: X-Key, scheme: ''}",
        "hosts: ['shop.example:8443', other.example]",
        "hosts: ['SHOP.example:8443']",
        "hosts: ['*.example:8443']",
    ],
)
def test_valid_headers_and_hosts_have_no_problem(tmp_path: Path, more: str) -> None:
    assert codes(tmp_path, tools(f"t: {{{HTTP}, args: {ARGS}, {more}}}")) == []


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        ("headers: {«Host: b}", "header", 'the header "Host" is reserved; agentrun sets it'),
        ("auth: {secret: '${T}', header: «Host}", "header", 'the header "Host" is reserved; agentrun sets it'),
        ("headers: {X-A: b, «x-a: c}", "header", 'the header "x-a" is set twice'),
        (
            "headers: {authorization: b}, auth: «{secret: '${T}'}",
            "header",
            'the header "Authorization" is set in both `auth` and `headers`',
        ),
        ('headers: {«X-A: "a\\r\\nX-B: c"}', "header", 'the value of the header "X-A" is invalid'),
        ("headers: {«X-A: é}", "header", 'the value of the header "X-A" is invalid'),
        (
            "auth: {secret: '${T}', scheme: \"a\\nb\", header: «X-K}",
            "header",
            'the value of the header "X-K" is invalid',
        ),
        ("hosts: «[other.example]", "url", "`hosts` does not include the host of `url`, "),
        ("hosts: «[shop.example]", "url", "`hosts` does not include the host of `url`, "),
        ("hosts: «['*.shop.example:8443']", "url", "`hosts` does not include the host of `url`, "),
    ],
)
def test_invalid_headers_and_hosts_are_reported(tmp_path: Path, more: str, code: str, message: str) -> None:
    ((found_code, found_message, hint),) = reported(tmp_path, f"t: {{{HTTP}, {more}}}")
    assert (found_code, found_message[: len(message)], hint is None) == (code, message, False)


def test_invalid_header_of_a_sink_is_reported(tmp_path: Path) -> None:
    sink = "sinks: {inbox: {kind: http, url: 'https://shop.example/', headers: {Content-Length: '2'}}}\n"
    assert codes(tmp_path, sink) == ["spec.header"]


LINES = {
    "kind: shell, description: d, argv: «python3 'a b.py' -v": ("wrong_type", '["python3", "a b.py", "-v"]'),
    "kind: shell, description: d, argv: «it's one": ("wrong_type", """["it's one"]"""),
    "kind: mcp, tools: [x], command: «python3 parcels.py": ("wrong_type", '["python3", "parcels.py"]'),
    "kind: mcp, tools: [x], command: [«'python3 parcels.py', -v]": ("argv", '["python3", "parcels.py", "-v"]'),
}


@pytest.mark.parametrize("fields", LINES)
def test_command_written_as_one_string_gets_a_hint(tmp_path: Path, fields: str) -> None:
    code, words = LINES[fields]
    (problem,) = reported(tmp_path, f"t: {{{fields}}}")
    assert (problem[0], words in (problem[2] or "")) == (code, True), problem


def test_command_with_a_space_is_allowed_if_the_file_exists(tmp_path: Path) -> None:
    fields = "kind: shell, description: d, argv: ['my tools/x y', z]"
    assert codes(tmp_path, tools(f"t: {{{fields}}}")) == ["spec.argv"]
    (tmp_path / "my tools").mkdir()
    (tmp_path / "my tools" / "x y").touch()
    assert codes(tmp_path, tools(f"t: {{{fields}}}")) == []
