"""Files that prompts include or import: read inside the project, checked with their places, part of the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import pytest

from agentrun.cassette.miss_context import make_miss_context
from agentrun.cassette.prompt_diff import render_templates
from agentrun.compiler import template
from agentrun.compiler.compile import compile_or_raise, compile_spec, validate_spec
from agentrun.compiler.package_file import seal_package
from agentrun.compiler.prompts import complete_params, render_instructions
from agentrun.compiler.template import (
    TemplateRenderError,
    bundle_template,
    included_files,
    render_template,
    render_template_lines,
)
from agentrun.compiler.template_branches import branches_taken, find_branches
from agentrun.compiler.template_parser import MAX_TEMPLATE_TOKENS
from agentrun.compiler.template_sandbox import compile_template

from ..projects import agent, write_project

FILES = {
    "tone.md": "Be {{ how|default('brief') }}.\n{% include 'rules.md' %}",
    "rules.md": "- #} {{ name }}\n",
    "macros.j2": "{% macro box(x) %}[{{ x }}]{% endmacro %}{% set version = 3 %}",
    "loop.md": "{% include 'loop.md' %}",
    "own.md": "{{ hidden|default('unseen') }}{% set leak = 1 %}",
}
TEMPLATES = [
    "A\n{% include 'tone.md' %}Z",
    "{% set how = 'kind' %}{% include 'tone.md' %}",
    "{% for how in ['a', 'b'] %}{% include 'tone.md' %}{% endfor %}",
    "{% import 'macros.j2' as m %}{{ m.box(name) }}{{ m.version }}",
    "{% from 'macros.j2' import box, version as v %}{{ box('x') }}{{ v }}",
    "{% set hidden = 1 %}{% include 'own.md' %}{{ leak|default('kept inside') }}",
    "{% set x %}<{% include 'rules.md' %}>{% endset %}{{ x|upper }}",
    "{% macro m() %}{% include 'rules.md' %}{% endmacro %}{{ m() }}",
    "{% import 'own.md' as m with context %}{{ m.leak }}",
]
ORACLE = jinja2.Environment(  # noqa: S701  # an oracle
    undefined=jinja2.StrictUndefined, keep_trailing_newline=True, loader=jinja2.DictLoader(FILES)
)


@pytest.mark.parametrize("source", TEMPLATES)
def test_like_jinja(source: str) -> None:
    bundle = bundle_template(source, FILES)
    expected = ORACLE.from_string(source).render(name="Ada")
    assert render_template(bundle, {"name": "Ada"}) == expected
    assert "\n".join(line.text for line in render_template_lines(bundle, {"name": "Ada"})) == expected


def test_only_what_is_included_is_in_a_bundle() -> None:
    assert bundle_template("{{ x }}", FILES) == "{{ x }}"
    assert "rules.md" in bundle_template("{% include 'tone.md' %}", FILES)
    assert "macros.j2" not in bundle_template("{% include 'tone.md' %}", FILES)


def test_a_comment_of_the_author_is_no_bundle() -> None:
    assert render_template("a{# files: none #}", {}) == "a"
    assert render_template('a{# files: {"x": 1} #}', {}) == "a"
    assert render_template('a{# files: {"x": "1"} #}', {}) == "a"
    assert render_template('{{ \'{# files: {"a":"b"}\'}}', {}) == '{# files: {"a":"b"}'
    assert render_template("{# {# files: {} #}b", {}) == "b"
    assert render_template('{# {# files: {"x": "1"} #}', {}) == ""


def test_a_line_of_a_file_is_traced_to_it() -> None:
    lines = render_template_lines(bundle_template("A\n{% include 'tone.md' %}Z", FILES), {"name": "Ada"})
    assert [(line.text, line.file(), line.origin()) for line in lines] == [
        ("A", "", 1),
        ("Be brief.", "tone.md", 1),
        ("- #} Ada", "rules.md", 1),
        ("Z", "", 2),
    ]


def test_an_endless_include_stops() -> None:
    with pytest.raises(TemplateRenderError, match="nested too deeply"):
        render_template(bundle_template("{% include 'loop.md' %}", FILES), {})


def test_a_file_that_is_not_in_the_package() -> None:
    with pytest.raises(TemplateRenderError, match="not in the package"):
        render_template("{% include 'gone.md' %}", {})


def test_a_mistake_in_a_file_names_it() -> None:
    with pytest.raises(TemplateRenderError, match=r"rules\.md, line 1: `name` is not set") as stopped:
        render_template(bundle_template("\n{% include 'rules.md' %}", FILES), {})
    assert (stopped.value.file, stopped.value.line, stopped.value.column) == ("rules.md", 1, 9)


def test_branches_of_a_template_with_files() -> None:
    source = bundle_template("{% if x %}{% include 'rules.md' %}{% endif %}{{ 1 if x else 2 }}", FILES)
    assert branches_taken(source, {"x": 1, "name": "a"}) == {"3:true", "48:true"}
    assert branches_taken(source, {"x": 0}) == {"3:false", "48:false"}


def test_branches_of_the_files() -> None:
    files = {"a.md": "{% if x %}{% include 'b.md' %}{% endif %}", "b.md": "{{ 1 if x else 2 }}"}
    source = bundle_template("{% include 'a.md' %}{% include 'b.md' %}", files)
    assert [branch.mark for branch in find_branches(source)] == [
        *("a.md@3:false", "a.md@3:true"),
        *("b.md@3:false", "b.md@3:true"),
    ]
    assert branches_taken(source, {"x": 1}) == {"a.md@3:true", "b.md@3:true"}
    assert branches_taken(source, {"x": 0}) == {"a.md@3:false", "b.md@3:false"}


def test_tokens_are_counted_over_all_files() -> None:
    part = "{{ x }}" * (MAX_TEMPLATE_TOKENS // 9 + 1)
    files = {"a.md": part, "b.md": part}
    two = "{% include 'a.md' %}{% include 'b.md' %}"
    assert render_template(bundle_template(two, files), {"x": "y"}) == "y" * 2 * (MAX_TEMPLATE_TOKENS // 9 + 1)
    whole = bundle_template(part + two, files)
    with pytest.raises(TemplateRenderError, match=f"more than {MAX_TEMPLATE_TOKENS} parts together"):
        render_template(whole, {"x": "y"})


# --- compiled once


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are compiled."""
    names: list[str] = []

    def counted(tree: Any, name: str = "", **more: Any) -> Any:
        names.append(name)
        return compile_template(tree, name, **more)

    monkeypatch.setattr(template, "compile_template", counted)
    monkeypatch.setattr(template, "_KEPT", template._KeptBundles())
    return names


def test_a_long_template_is_compiled_once(compilations: list[str]) -> None:
    source = bundle_template("x" * 70_000 + "{% include 'rules.md' %}", FILES)
    for _ in range(3):
        render_template(source, {"name": "a"})
    assert sorted(compilations) == ["", "rules.md"]


def test_all_templates_of_a_package_are_kept(compilations: list[str]) -> None:
    for _ in range(3):
        for number in range(200):
            render_template(f"{{{{ x }}}} {number}", {"x": 1})
    assert len(compilations) == 200


def test_each_way_to_render_is_compiled_once(compilations: list[str]) -> None:
    for _ in range(3):
        render_template("{{ 1 if x }}", {"x": 1})
        render_template_lines("{{ 1 if x }}", {"x": 1})
        branches_taken("{{ 1 if x }}", {"x": 1})
    assert len(compilations) == 3


def test_only_so_much_is_kept(compilations: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "_MAX_KEPT", 4_000)  # about ten of these
    for number in [*range(20), 19, 0]:
        render_template(f"{{{{ x }}}} {number}", {"x": 1})
    assert len(compilations) == 21


def test_names_and_places() -> None:
    assert included_files("{% include 'a' %}{% import 'b' as b %}{% from 'c' import d %}{% include e %}") == [
        ("a", 11),
        ("b", 27),
        ("c", 46),
    ]


# --- in a project

SPEC = "params: {name: {type: string, default: Ada}}\ninstructions: {file: prompts/main.md}\n"
PROJECT: dict[str, str | bytes] = {
    "pyproject.toml": "[tool.agentrun]\n",
    "specs/prompts/main.md": "Hi.\n{% include 'tone.md' %}{% include 'shared/end.md' %}",
    "specs/prompts/tone.md": "Be kind to {{ name }}.\n",
    "shared/end.md": "Bye.",
}


def make_project(folder: Path, **changed: str) -> Path:
    folder.mkdir(exist_ok=True)
    texts = {name.replace("__", "/"): text for name, text in changed.items()}
    write_project(folder, {**PROJECT, "specs/spec.yaml": agent(SPEC), **texts})
    return folder / "specs" / "spec.yaml"


def problems(folder: Path, **changed: str) -> list[tuple[str, str]]:
    return [
        (str(problem.place).removeprefix(f"{folder}/"), problem.code)
        for problem in validate_spec(make_project(folder, **changed))
        if problem.severity == "error"
    ]


def test_files_of_a_project(tmp_path: Path) -> None:
    package = compile_spec(make_project(tmp_path)).package
    assert package is not None
    assert render_instructions(package, complete_params(package, {})) == "Hi.\nBe kind to Ada.\nBye."


def test_a_miss_names_the_path_of_a_file(tmp_path: Path) -> None:
    spec, file = compile_or_raise(make_project(tmp_path))
    context = make_miss_context(spec, file, message=None, params={}, accept="", whole=False)
    rendered = render_templates(context.instructions, context.params)
    assert rendered is not None
    assert [line.place(0) for line in rendered.lines] == [
        ("specs/prompts/main.md", 1),
        ("specs/prompts/tone.md", 1),
        ("shared/end.md", 1),
    ]


def test_a_changed_file_changes_the_fingerprint(tmp_path: Path) -> None:
    one = compile_spec(make_project(tmp_path / "one")).package
    two = compile_spec(make_project(tmp_path / "two", **{"shared__end.md": "Good bye."})).package
    assert one is not None
    assert two is not None
    first, second = seal_package(one), seal_package(two)
    assert first.fingerprint != second.fingerprint
    changed = [name for name in first.sections if first.sections[name] != second.sections[name]]
    assert changed == ["instructions"]


@pytest.mark.parametrize(
    ("changed", "place", "code"),
    [
        ({"specs__prompts__main.md": "{{ name }}{% include 'gone.md' %}"}, "main.md:1:22", "spec.file_missing"),
        ({"specs__prompts__main.md": "{{ name }}{% include '../../../x' %}"}, "main.md:1:22", "spec.file_outside"),
        ({"specs__prompts__main.md": "{{ name }}{% include '/etc/passwd' %}"}, "main.md:1:22", "spec.file_outside"),
        ({"specs__prompts__tone.md": "{{ name }}\n {{ nme }}"}, "tone.md:2:5", "spec.template_unknown_name"),
        ({"specs__prompts__tone.md": "{{ name }}{% if %}"}, "tone.md:1:14", "spec.template_syntax"),
        ({"specs__prompts__tone.md": "{{ name }}{% include 'x' %}"}, "tone.md:1:22", "spec.file_missing"),
    ],
)
def test_problems_of_files(tmp_path: Path, changed: dict[str, str], place: str, code: str) -> None:
    found = problems(tmp_path, **changed)
    assert found[0][0].endswith(place)
    assert found[0][1] == code


def test_a_linked_file_is_refused(tmp_path: Path) -> None:
    changed = {"specs__prompts__main.md": "{{ name }}{% include 'linked.md' %}{% include 'shared/linked.md' %}"}
    spec = make_project(tmp_path, **changed)
    (tmp_path / "specs/prompts/linked.md").symlink_to("tone.md")
    (tmp_path / "shared/linked.md").symlink_to("end.md")
    messages = [problem.message for problem in validate_spec(spec)]
    assert [message for message in messages if "goes through a symbolic link" in message] == messages
    assert len(messages) == 2


def test_a_param_of_an_included_file_is_used(tmp_path: Path) -> None:
    assert validate_spec(make_project(tmp_path)) == []
    (unused,) = validate_spec(make_project(tmp_path, **{"specs__prompts__tone.md": "Be kind. name"}))
    assert unused.code == "spec.unused_param"


def test_files_that_are_too_large_together(tmp_path: Path) -> None:
    spec = SPEC.replace(", default: Ada", "")  # so that nothing is rendered
    third = "{{ name }}" * (MAX_TEMPLATE_TOKENS // 9 + 1)
    changed = {"specs__spec.yaml": agent(spec), "specs__prompts__tone.md": third, "shared__end.md": third}
    assert problems(tmp_path, **changed) == []
    both = {**changed, "specs__prompts__main.md": f"{third}{{% include 'tone.md' %}}{{% include 'shared/end.md' %}}"}
    assert problems(tmp_path, **both) == [("specs/prompts/main.md:1:1", "spec.template_syntax")]


def test_too_many_variables_for_its_includes(tmp_path: Path) -> None:
    spec = agent(SPEC.replace(", default: Ada", ""))
    variables = "".join(f"{{% set v{n} = 1 %}}" for n in range(400))
    changed = {"specs__spec.yaml": spec, "specs__prompts__main.md": variables + "{% include 'tone.md' %}" * 10}
    assert problems(tmp_path, **changed) == []
    changed["specs__prompts__main.md"] += "{% include 'tone.md' %}" * 400
    assert problems(tmp_path, **changed) == [("specs/prompts/main.md:1:1", "spec.template_syntax")]


def test_a_name_must_be_known_wherever_its_file_is_included(tmp_path: Path) -> None:
    """Each mistake is reported once: checking a file for each place that includes it would take seconds."""
    files = {
        "shared__a.md": "{{ one }}{{ two }}{% include 'shared/b.md' %}",
        "shared__b.md": "{{ one }}{{ two }}{% include 'shared/a.md' %}",
    }
    both = "{{ name }}{% set one = 1 %}{% if 0 %}{% include 'shared/b.md' %}{% endif %}{% set two = 2 %}"
    found = problems(tmp_path, **files, **{"specs__prompts__main.md": both + "{% include 'shared/a.md' %}"})
    assert found == [
        ("shared/a.md:1:13", "spec.template_unknown_name"),
        ("shared/b.md:1:13", "spec.template_unknown_name"),
    ]
    known = both.replace("{% if 0", "{% set two = 2 %}{% if 0")
    found = problems(tmp_path, **files, **{"specs__prompts__main.md": known + "{% include 'shared/a.md' %}"})
    assert [code for _, code in found] == ["spec.template_render"]  # it is endless


def test_an_imported_file_sees_only_its_own_names(tmp_path: Path) -> None:
    changed = {"specs__prompts__main.md": "{% import 'tone.md' as t %}{{ name }}"}
    assert problems(tmp_path, **changed)[0][1] == "spec.template_unknown_name"


def test_a_tool_includes_nothing(tmp_path: Path) -> None:
    tool = "  t: {kind: shell, description: d, argv: [x, \"{% include 'tone.md' %}\"]}\n"
    found = problems(tmp_path, **{"specs__spec.yaml": agent(f"{SPEC}policy: {{default: allow}}\ntools:\n{tool}")})
    assert [code for _, code in found] == ["spec.template_forbidden"]


# --- validate renders with the defaults

ENDLESS = "{% for i in range(9999) %}{% for j in range(9999) %}x{% endfor %}{% endfor %}{{ name }}"


def test_an_endless_prompt_is_refused_by_validate(tmp_path: Path) -> None:
    assert problems(tmp_path, **{"specs__prompts__main.md": ENDLESS})[0][1] == "spec.template_render"


def test_an_endless_file_is_refused_at_its_place(tmp_path: Path) -> None:
    found = problems(tmp_path, **{"specs__prompts__tone.md": f"{{{{ name }}}}\n {ENDLESS}"})
    assert found == [("specs/prompts/tone.md:2:54", "spec.template_render")]


CHILD = "policy: {default: allow}\ntools: {child: {kind: agent, spec: child.yaml%s}}\n"


@pytest.mark.parametrize(
    ("params", "given", "expected"),
    [
        ("{n: {type: integer, default: 0}}", "", []),
        ("{n: {type: integer, default: 9999}}", "", ["spec.template_render"]),
        ("{n: {type: integer, default: 9999}}", ", params: {n: 0}", []),
        ("{n: {type: integer, default: 0}}", ", params: {n: 9999}", ["spec.template_render"]),
        ("{n: {type: integer}}", ", params: {n: 9999}", ["spec.template_render"]),
        ("{n: {type: integer}}", "", []),
    ],
)
def test_the_prompts_of_a_sub_agent_are_rendered_too(
    tmp_path: Path, params: str, given: str, expected: list[str]
) -> None:
    prompt = ENDLESS.replace("range(9999)", "range(n)").replace("{{ name }}", "")
    child = agent(f"description: d\nparams: {params}\ninstructions: '{prompt}'\n")
    changed = {"specs__spec.yaml": agent(f"{SPEC}{CHILD % given}"), "specs__child.yaml": child}
    assert problems(tmp_path, **changed) == [("specs/child.yaml:3:62", code) for code in expected]


def test_compiling_renders_nothing(tmp_path: Path) -> None:
    assert compile_spec(make_project(tmp_path, **{"specs__prompts__main.md": ENDLESS})).package is not None


def test_without_defaults_nothing_is_rendered(tmp_path: Path) -> None:
    spec = SPEC.replace(", default: Ada", "")
    assert problems(tmp_path, **{"specs__prompts__main.md": ENDLESS, "specs__spec.yaml": agent(spec)}) == []
