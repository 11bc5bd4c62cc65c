"""Spec coverage of templates: which ways through them runs take, and where those stand that none takes."""

from __future__ import annotations

from pathlib import Path

from agentrun.testing.doubles import calls

from .coverage_runs import Covered

PARAMS = "params: {region: {type: string, default: eu}, names: {type: array, default: [a]}}\n"


def places(covered: Covered) -> set[tuple[str, str]]:
    """The ways that nothing took, each with its file and line."""
    missing = [part for part in covered.of().missing if part.kind == "branch"]
    return {(f"{Path(part.file).name}:{part.line}", part.name) for part in missing}


def test_the_ways_of_a_choice_in_a_file_have_its_name_and_line(tmp_path: Path) -> None:
    prompt = (
        'Hello.\n{% if region == "eu" %}\nEurope.\n{% elif region == "us" %}\nAmerica.\n{% else %}\nHm.\n{% endif %}\n'
    )
    text = f"{PARAMS}input: Go.\ninstructions: {{file: prompt.md}}\n"
    covered = Covered(tmp_path, text, **{"prompt.md": prompt}).run("Done.")
    first, second, third = (
        '{% if region == "eu" %}',
        '{% elif region == "us" %}',
        '{% else %} of {% if region == "eu" %}',
    )
    assert covered.parts("branch") == {first: True, second: False, third: False}
    assert places(covered) == {("prompt.md:4", second), ("prompt.md:6", third)}
    covered.run("Done.", params={"region": "us"})
    assert places(covered) == {("prompt.md:6", third)}
    covered.run("Done.", params={"region": "?"})
    assert places(covered) == set()


def test_a_choice_without_an_else_has_two_ways(tmp_path: Path) -> None:
    text = f'{PARAMS}input: Go.\ninstructions: |\n  Hello.\n  {{% if region == "eu" %}}Europe.{{% endif %}}\n'
    covered = Covered(tmp_path, text).run("Done.")
    assert places(covered) == {("spec.yaml:5", '{% if region == "eu" %} false')}
    assert places(covered.run("Done.", params={"region": "us"})) == set()


def test_a_loop_has_two_ways(tmp_path: Path) -> None:
    text = f"{PARAMS}input: Go.\ninstructions: '{{% for n in names %}}{{{{ n }}}}{{% endfor %}}'\n"
    covered = Covered(tmp_path, text).run("Done.")
    assert places(covered) == {("spec.yaml:3", "{% for n in names %} with none")}
    assert places(covered.run("Done.", params={"names": []})) == set()


def test_a_loop_over_a_list_that_cannot_be_empty_has_one_way(tmp_path: Path) -> None:
    params = PARAMS.replace("type: array,", "type: array, minItems: 1,")
    text = f"{params}input: Go.\ninstructions: '{{% for n in names %}}{{{{ n }}}}{{% endfor %}}'\n"
    assert Covered(tmp_path, text).parts("branch") == {"{% for n in names %} with items": False}
    picky = Covered(tmp_path, text.replace("in names", "in names if n"))
    assert len(picky.parts("branch")) == 2, "what is left of it can"


def test_the_own_input_counts_only_if_the_run_was_told_it(tmp_path: Path) -> None:
    covered = Covered(tmp_path, f"{PARAMS}input: \"{{{{ 'Go' if region == 'eu' else 'Stay' }}}}\"\n")
    covered.run("Done.", message="Something else.")
    assert set(covered.parts("branch").values()) == {False}
    covered.run("Done.")
    assert sorted(covered.parts("branch").values()) == [False, True]
    covered.run("Done.", params={"region": "us"})
    assert set(covered.parts("branch").values()) == {True}


def test_templates_of_a_tool_count_for_each_call_that_ran(tmp_path: Path) -> None:
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
    covered = Covered(tmp_path, text).run(calls("fetch", id="x"), "Done.")
    assert set(covered.parts("branch").values()) == {False}, "it was denied"
    covered.run(calls("fetch", id="1"), "Done.")
    assert [part.name.rpartition(" ")[2] for part in covered.of().missing if part.kind == "branch"] == ["false"]
    covered.run(calls("fetch", id=""), "Done.")
    assert set(covered.parts("branch").values()) == {True}


def test_arguments_as_a_rule_rewrote_them_fill_a_template_in(tmp_path: Path) -> None:
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
    covered = Covered(tmp_path, text).run(calls("run", n=9), "Done.")
    assert [part.name.rpartition(" ")[2] for part in covered.of().missing if part.kind == "branch"] == ["true"]


def test_a_nudge_counts_only_if_the_model_was_told_it(tmp_path: Path) -> None:
    text = f"""{PARAMS}input: Go.
budgets: {{turns: 9, grace: 8}}
guards: {{empty_outcome: 2, nudge: "{{% if region == 'eu' %}}On.{{% endif %}}Go."}}
tools:
  look: {{kind: shell, description: d, argv: [x]}}
  end: {{kind: shell, description: d, argv: [x], terminal: true}}
policy: {{default: allow}}
"""
    covered = Covered(tmp_path, text).run(calls("look"), calls("end"))  # after it was told to wrap up
    assert set(covered.parts("branch").values()) == {False}
    covered.run("Well.", calls("end"))
    assert sorted(covered.parts("branch").values()) == [False, True]
