"""Spec coverage of template branches, with their places."""

from __future__ import annotations

from pathlib import Path

from agentrun.testing.doubles import calls

from .coverage_runs import CoveredRuns

PARAMS = "params: {region: {type: string, default: eu}, names: {type: array, default: [a]}}\n"


def uncovered_branches(covered: CoveredRuns) -> set[tuple[str, str]]:
    """The ways that nothing took, each with its file and line."""
    missing = [part for part in covered.of().missing if part.kind == "branch"]
    return {(f"{Path(part.file).name}:{part.line}", part.name) for part in missing}


def test_branches_of_an_if_in_a_file_have_file_and_line(tmp_path: Path) -> None:
    prompt = (
        'Hello.\n{% if region == "eu" %}\nEurope.\n{% elif region == "us" %}\nAmerica.\n{% else %}\nHm.\n{% endif %}\n'
    )
    text = f"{PARAMS}input: Go.\ninstructions: {{file: prompt.md}}\n"
    covered = CoveredRuns(tmp_path, text, **{"prompt.md": prompt}).run("Done.")
    first, second, third = (
        '{% if region == "eu" %}',
        '{% elif region == "us" %}',
        '{% else %} of {% if region == "eu" %}',
    )
    assert covered.parts("branch") == {first: True, second: False, third: False}
    assert uncovered_branches(covered) == {("prompt.md:4", second), ("prompt.md:6", third)}
    covered.run("Done.", params={"region": "us"})
    assert uncovered_branches(covered) == {("prompt.md:6", third)}
    covered.run("Done.", params={"region": "?"})
    assert uncovered_branches(covered) == set()


def test_branches_of_included_files_count_once(tmp_path: Path) -> None:
    files = {"tone.md": "Hm.\n{% if region == 'eu' %}Europe.{% endif %}", "main.md": "A.\n{% include 'tone.md' %}"}
    text = f"{PARAMS}input: \"Go. {{% include 'tone.md' %}}\"\ninstructions: {{file: main.md}}\n"
    covered = CoveredRuns(tmp_path, text, **files).run("Done.")
    assert uncovered_branches(covered) == {("tone.md:2", "{% if region == 'eu' %} false")}
    assert covered.parts("branch") == {"{% if region == 'eu' %}": True, "{% if region == 'eu' %} false": False}
    assert len([part for part in covered.of().parts if part.kind == "branch"]) == 2
    assert uncovered_branches(covered.run("Done.", params={"region": "us"})) == set()


def test_if_without_else_has_two_branches(tmp_path: Path) -> None:
    text = f'{PARAMS}input: Go.\ninstructions: |\n  Hello.\n  {{% if region == "eu" %}}Europe.{{% endif %}}\n'
    covered = CoveredRuns(tmp_path, text).run("Done.")
    assert uncovered_branches(covered) == {("spec.yaml:5", '{% if region == "eu" %} false')}
    assert uncovered_branches(covered.run("Done.", params={"region": "us"})) == set()


def test_loop_has_two_branches(tmp_path: Path) -> None:
    text = f"{PARAMS}input: Go.\ninstructions: '{{% for n in names %}}{{{{ n }}}}{{% endfor %}}'\n"
    covered = CoveredRuns(tmp_path, text).run("Done.")
    assert uncovered_branches(covered) == {("spec.yaml:3", "{% for n in names %} with none")}
    assert uncovered_branches(covered.run("Done.", params={"names": []})) == set()


def test_loop_over_a_non_empty_list_has_one_branch(tmp_path: Path) -> None:
    params = PARAMS.replace("type: array,", "type: array, minItems: 1,")
    text = f"{params}input: Go.\ninstructions: '{{% for n in names %}}{{{{ n }}}}{{% endfor %}}'\n"
    assert CoveredRuns(tmp_path, text).parts("branch") == {"{% for n in names %} with items": False}
    picky = CoveredRuns(tmp_path, text.replace("in names", "in names if n"))
    assert len(picky.parts("branch")) == 2, "what is left of it can"


def test_input_template_is_covered_only_if_it_is_used(tmp_path: Path) -> None:
    covered = CoveredRuns(tmp_path, f"{PARAMS}input: \"{{{{ 'Go' if region == 'eu' else 'Stay' }}}}\"\n")
    covered.run("Done.", message="Something else.")
    assert set(covered.parts("branch").values()) == {False}
    covered.run("Done.")
    assert sorted(covered.parts("branch").values()) == [False, True]
    covered.run("Done.", params={"region": "us"})
    assert set(covered.parts("branch").values()) == {True}


def test_tool_templates_are_covered_by_calls_that_ran(tmp_path: Path) -> None:
    text = """\
input: Go.
tools:
  fetch:
    kind: http
    description: d
    url: "https://a.example/{{ args.id if args.id else 'all' }}"
    args: {type: object, properties: {id: {type: string}}, required: [id]}
policy: {default: deny, rules: [{id: some, allow: fetch, when: "args.id != 'x'"}]}
"""
    covered = CoveredRuns(tmp_path, text).run(calls("fetch", id="x"), "Done.")
    assert set(covered.parts("branch").values()) == {False}, "it was denied"
    covered.run(calls("fetch", id="1"), "Done.")
    assert [part.name.rpartition(" ")[2] for part in covered.of().missing if part.kind == "branch"] == ["false"]
    covered.run(calls("fetch", id=""), "Done.")
    assert set(covered.parts("branch").values()) == {True}


def test_tool_templates_use_arguments_as_modified_by_a_rule(tmp_path: Path) -> None:
    text = """\
input: Go.
tools:
  run:
    kind: shell
    description: d
    argv: [x, "{{ 'much' if args.n > 5 else 'little' }}"]
    args: {type: object, properties: {n: {type: integer}}, required: [n]}
policy:
  default: allow
  rules: [{id: cap, modify: run, set: {n: 1}, when: args.n > 5}]
"""
    covered = CoveredRuns(tmp_path, text).run(calls("run", n=9), "Done.")
    assert [part.name.rpartition(" ")[2] for part in covered.of().missing if part.kind == "branch"] == ["true"]


def test_nudge_template_is_covered_only_if_it_was_sent(tmp_path: Path) -> None:
    text = f"""{PARAMS}input: Go.
budgets: {{turns: 9, grace: 8}}
guards: {{empty_outcome: 2, nudge: "{{% if region == 'eu' %}}On.{{% endif %}}Go."}}
tools:
  look: {{kind: shell, description: d, argv: [x]}}
  end: {{kind: shell, description: d, argv: [x], terminal: true}}
policy: {{default: allow}}
"""
    covered = CoveredRuns(tmp_path, text).run(calls("look"), calls("end"))  # after it was told to wrap up
    assert set(covered.parts("branch").values()) == {False}
    covered.run("Well.", calls("end"))
    assert sorted(covered.parts("branch").values()) == [False, True]
