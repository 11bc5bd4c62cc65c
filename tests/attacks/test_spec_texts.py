"""THREATS rows 17 to 19, 21 and 79, hostile templates and secrets in a spec."""

import json
from pathlib import Path

import pytest

from agentrun.spec.problems import PROBLEM_CODES

from ..measured_commands import run
from ..projects import agent, write_project
from .hostile_projects import Files, assert_refused, attack, codes

# --- B. templates -------------------------------------------------------------------------------------------

ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ p|attr('__class__') }}",
    "{{ p['__class__'] }}",
    "{{ p.format.__globals__ }}",
    "{{ '{0.__class__}'.format(p) }}",
    "{{ self.__init__ }}",
    "{{ config }}",
    "{{ namespace().__class__ }}",
    "{{ joiner() }}",
    "{% set x = p.__class__ %}",
    "{% for x in ().__class__.__base__.__subclasses__() %}{% endfor %}",
    "{{ lipsum.__globals__ }}",
    "{{ request.application }}",
    "{{ p|xmlattr }}",
    "{% raw %}{% endraw %}{{ p.__dict__ }}",
]
BOMBS = [
    "{{ 'a' * 10**9 }}",
    "{{ 'a'.center(10**9) }}",
    "{{ '%1000000000d'|format(1) }}",
    "{{ 10**(10**8) }}",
    "{% for i in range(9999) %}{% for j in range(9999) %}x{% endfor %}{% endfor %}",
    "{{ lipsum(n=100000) }}",
    "{{ range(10**12)|list }}",
    "{{ 'a'|center(1000000000) }}",
    "{{ [1] * 1000000000 }}",
    "{% set x = 'a' * 1000000 %}" + "{{ x }}" * 1000,
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "{{ " + "1+" * 9000 + "1 }}",
    "{{ " + "not " * 5000 + "1 }}",
    "{% if 1 %}" * 5000 + "{% endif %}" * 5000,
    "{{" * 50_000,
    "{{ 9" + "9" * 100_000 + " }}",
    "{{ '" + "\\\\" * 100_000 + "' }}",
    "{{ p|" + "upper|" * 9000 + "lower }}",
]
INCLUDES = [
    '{% include "../../etc/passwd" %}',
    "{% include p %}",
    '{% import "x" as y %}',
    '{% from "x" import y %}',
    '{% extends "/etc/passwd" %}',
    "{% include ['a', 'b'] ignore missing %}",
    "{% block b %}{% endblock %}",
]
TOOLS = "params: {p: {type: string}}\npolicy: {default: allow}\ntools: {t: {%s}}\n"
TEMPLATE_PLACES = [
    "params: {p: {type: string}}\ninstructions: %s\n",
    "params: {p: {type: string}}\ninput: %s\n",
    TOOLS % "kind: shell, description: d, argv: [x, %s]",
    TOOLS % "kind: http, description: d, url: 'https://a.example/', body: {b: [%s]}",
]


def templates(given: list[str]) -> dict[str, str | Files]:
    found: dict[str, str | Files] = {}
    for number, template in enumerate(given):
        where = TEMPLATE_PLACES[number % len(TEMPLATE_PLACES)]
        found[f"{number} inline"] = where % json.dumps(template)
        spec = agent("params: {p: {type: string}}\ninstructions: {file: p.md}\n")
        found[f"{number} in a file"] = {"spec.yaml": spec, "p.md": template}
    return found


TEMPLATE_CODES = [code for code in PROBLEM_CODES if code.startswith("spec.template_")]


@pytest.mark.parametrize("command", ["validate", "render"])
def test_17_template_escapes_are_refused(tmp_path: Path, command: str) -> None:
    for name, ran in attack(tmp_path, templates(ESCAPES), command, "spec.yaml").items():
        assert codes(ran) <= set(TEMPLATE_CODES), (name, ran.output)
        assert (ran.code, bool(codes(ran))) == (2, True), name


def test_17_map_cannot_read_python_attributes(tmp_path: Path) -> None:
    """Values are JSON: asking for an attribute of Python finds nothing."""
    text = "params: {p: {type: string, default: x}}\ninstructions: \"{{ [p]|map(attribute='__class__')|list }}\"\n"
    ran = attack(tmp_path, {"map": text}, "render", "spec.yaml")["map"]
    assert ran.code == 2
    assert "input.rejected" in ran.output
    assert "class 'str'" not in ran.output


@pytest.mark.parametrize("command", ["validate", "render"])
def test_18_expensive_templates_are_refused_or_stopped(tmp_path: Path, command: str) -> None:
    """Refused before a render where that can be known, stopped in it where not."""
    for name, ran in attack(tmp_path, templates(BOMBS), command, "spec.yaml").items():
        if command == "render" and not codes(ran):
            assert "input.rejected" in ran.output, name
        elif not codes(ran):
            continue  # only a render would be too much
        assert codes(ran) <= {*TEMPLATE_CODES, "spec.out_of_range", "spec.too_large"}, (name, ran.output)
        assert ran.code == 2, name


def test_18_many_large_templates_are_refused(tmp_path: Path) -> None:
    parts = ", ".join(json.dumps(f"{n}" + "{{ p }}" * 2000) for n in range(64))
    text = f"params: {{p: {{type: string}}}}\ninstructions: [{parts}]\n"
    assert_refused(tmp_path, {"many": text}, "spec.too_large")


def test_19_template_syntax_in_params_is_not_rendered(tmp_path: Path) -> None:
    value = "{{ secrets.X }}{% include 'x' %}{{ p }}${HOME}"
    spec = f"params: {{p: {{type: string, default: {json.dumps(value)}}}}}\n"
    spec += "instructions: 'A {{ p }} B'\ninput: '{{ p|upper }}'\n"
    ran = attack(tmp_path, {"default": spec}, "render", "spec.yaml")["default"]
    assert ran.code == 0
    assert f"A {value} B" in ran.out
    assert value.upper() in ran.out
    other = tmp_path / "other"
    other.mkdir()
    (given,) = run(
        [(write_project(other, {"spec.yaml": agent(spec)}).parent, ["render", "spec.yaml", "--param", f"p={value}"])]
    )
    assert f"A {value} B" in given.out


@pytest.mark.parametrize("command", ["validate", "render"])
def test_21_template_includes_are_refused(tmp_path: Path, command: str) -> None:
    for name, ran in attack(tmp_path, templates(INCLUDES), command, "spec.yaml").items():
        assert codes(ran) <= {"spec.template_forbidden", "spec.file_missing", "spec.file_outside"}, (name, codes(ran))
        assert (ran.code, bool(codes(ran))) == (2, True), (name, ran.output)
        assert "root:" not in ran.output


# --- N. secrets ---------------------------------------------------------------------------------------------

CANARIES = [
    "sk-ant-api03-Qw9xZt3LbN7vRk2PQw9xZt3L",
    "sk-proj-Qw9xZt3LbN7vRk2PQw9xZt3L",
    "AKIAQW9XZT3LBN7VRK2P",
    "ghp_Qw9xZt3LbN7vRk2PQw9xZt3LbN7vRk2P0123",
    "xoxb-123456789012-Qw9xZt3LbN7v",
    "AIzaQw9xZt3LbN7vRk2PQw9xZt3LbN7vRk2P0",
    "glpat-Qw9xZt3LbN7vRk2P0123",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.Qw9xZt3LbN7vRk2PQw9xZt3L",
    "sk_live_Qw9xZt3LbN7vRk2P0123",
    "npm_Qw9xZt3LbN7vRk2PQw9xZt3LbN7vRk2P0123",
    "hf_Qw9xZt3LbN7vRk2PQw9xZt3LbN7vRk2P01",
    "SG.Qw9xZt3LbN7vRk2P.Qw9xZt3LbN7vRk2PQw9xZt3L",
]
SECRET_PLACES = [
    "description: 'x %s y'\n",
    "model: {provider: p, name: m, headers: {Authorization: 'Bearer %s'}}\n",
    "params: {p: {type: string, default: '%s'}}\ninput: '{{ p }}'\n",
    "instructions: |\n  Hello\n  use %s please\n",
    "policy: {default: allow}\ntools: {t: {kind: shell, description: d, argv: [curl, '%s']}}\n",
    "policy: {default: allow}\ntools: {t: {kind: http, description: d, url: 'https://a.example/?key=%s'}}\n",
    "# %s\n",
    "zzz: '%s'\n",
    "name: '%s'\n",
    "instructions: '{{ \"%s\"|nothing }}'\n",
]


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_79_secrets_in_a_spec_are_reported_and_not_shown(tmp_path: Path, options: list[str]) -> None:
    attacks = {f"{canary} {n}": place % canary for canary in CANARIES for n, place in enumerate(SECRET_PLACES)}
    for name, ran in attack(tmp_path, dict(attacks), "validate", "spec.yaml", *options).items():
        assert "spec.secret" in ran.output, name
        assert name.split()[0] not in ran.output, name
        assert ran.code == 2
