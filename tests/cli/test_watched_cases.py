"""Which cases a change of a file touches."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrun.cli.suite_watch import FileStates, WatchedCases, read_watched_cases
from agentrun.testing.suite.selection import CaseFilter, SelectedCases, select_cases

from ..testing.suite.planted_changes import ROOT

SUPPORT = ["approval", "busy", "conversation", "cut", "default", "denial", "down", "lost", "retry", "twice", "us"]
DEFAULT = ["busy", "cut", "default", "down"]
RESEARCHER = ["approval", "busy", "default", "denial", "retry"]
READER = ["default", "other"]
SCHEMA_CASES = """\
agentrun: "1"
cases:
  - {name: schema, assert: [{type: json-schema, value: {file: answer.json}}]}
  - {name: code, assert: [{type: python, value: "shop.checks:looks_before_it_pays"}]}
  - {name: talk, turns: [{input: a, assert: [{type: python, value: "other:check"}]}]}
"""


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("watched") / "project"
    for name in ("specs", "cassettes"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "pyproject.toml").write_text('[tool.agentrun]\nimport_roots = ["specs"]\n', encoding="utf-8")
    return folder


@pytest.fixture
def project(examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(examples, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def select() -> SelectedCases:
    return select_cases(["."], CaseFilter())


def touched_after(change: Callable[[], object]) -> dict[str, list[str]]:
    """The cases by file that a change touches, as `--watch` finds them."""
    before = read_watched_cases(select)
    states = FileStates(before.paths)
    assert states.find_changed() == set()
    change()
    return by_file(read_watched_cases(select).touched(before, states.find_changed()))


def by_file(found: SelectedCases) -> dict[str, list[str]]:
    cases: dict[str, list[str]] = {}
    for located in found.cases:
        cases.setdefault(located.spec.stem, []).append(located.case.name)
    return {file: sorted(names) for file, names in cases.items()}


def append(path: str, text: str = "\n# a comment\n") -> None:
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(text)


TOUCHED_BY: dict[str, dict[str, list[str]]] = {
    "specs/support.yaml": {"support": SUPPORT},
    "specs/prompts/support.md.j2": {"support": SUPPORT},
    "specs/tools/shop.yaml": {"support": SUPPORT},
    "specs/policies/reads.yaml": {"support": SUPPORT},
    "specs/shop/refunds.py": {"support": SUPPORT},
    "specs/shop/checks.py": {"support": SUPPORT},
    "specs/support.lock": {"support": SUPPORT},
    "cassettes/support/default.yaml": {"support": DEFAULT},
    "cassettes/support/us.yaml": {"support": ["us"]},
    "specs/__snapshots__/support/us.journal": {"support": ["us"]},
    "specs/reader.yaml": {"reader": READER, "researcher": RESEARCHER},
    "specs/support.cases.yaml": {},
    "specs/shop/orders.json": {},
    "specs/record.py": {},
}


def test_change_touches_the_cases_that_depend_on_the_file(project: Path) -> None:
    """One change after the other, as `--watch` sees them: the cases are read once after each."""
    before, found = read_watched_cases(select), {}
    for path in TOUCHED_BY:
        states = FileStates(before.paths)
        append(path)
        after = read_watched_cases(select)
        found[path] = by_file(after.touched(before, states.find_changed()))
        before = after
    assert found == TOUCHED_BY


def test_settings_of_the_project_touch_all_its_cases(project: Path) -> None:
    touched = touched_after(lambda: append("pyproject.toml"))
    assert len(touched["support"]) == 11
    assert len(touched) == 6


def replace_text(path: str, old: str, new: str) -> None:
    text = Path(path).read_text(encoding="utf-8")
    assert text.count(old) == 1
    Path(path).write_text(text.replace(old, new), encoding="utf-8")


def test_changed_case_is_touched_and_its_neighbours_are_not(project: Path) -> None:
    path = "specs/support.cases.yaml"
    assert touched_after(lambda: replace_text(path, "min: 14s, max: 30s", "min: 14s, max: 31s")) == {
        "support": ["busy"]
    }
    assert touched_after(lambda: append(path, "  - {name: again, cassette: default}\n")) == {"support": ["again"]}
    assert touched_after(lambda: replace_text(path, "max: 5k", "max: 6k")) == {"support": sorted([*SUPPORT, "again"])}


def test_files_of_assertions_touch_the_cases_that_use_them(project: Path) -> None:
    Path("specs/support.cases.yaml").write_text(SCHEMA_CASES, encoding="utf-8")
    Path("specs/answer.json").write_text('{"type": "object"}', encoding="utf-8")
    Path("specs/other.py").write_text("def check(run): ...\n", encoding="utf-8")
    schema = Path("specs/answer.json")
    assert touched_after(lambda: schema.write_text('{"type": "array"}', encoding="utf-8")) == {"support": ["schema"]}
    assert touched_after(lambda: append("specs/shop/checks.py")) == {"support": ["code"]}
    assert touched_after(lambda: append("specs/other.py")) == {"support": ["talk"]}


@pytest.mark.parametrize("path", ["cassettes/support/us.yaml", "specs/__snapshots__/support/us.journal"])
def test_file_that_is_removed_or_appears_is_a_change(project: Path, path: str) -> None:
    content = Path(path).read_bytes()
    assert touched_after(Path(path).unlink) == {"support": ["us"]}
    assert touched_after(lambda: Path(path).write_bytes(content)) == {"support": ["us"]}


def test_spec_that_does_not_compile_is_watched_until_its_missing_file_is_there(project: Path) -> None:
    prompt = Path("specs/prompts/tone.md")
    text = prompt.read_bytes()
    broken = touched_after(prompt.unlink)
    assert broken["support"] == SUPPORT, "so that the mistake is reported"
    assert touched_after(lambda: prompt.write_bytes(text))["support"] == SUPPORT


def test_file_of_cases_that_becomes_unreadable_is_reported(project: Path) -> None:
    before = read_watched_cases(select)
    states = FileStates(before.paths)
    append("specs/support.cases.yaml", "  - {nam: x}\n")
    now = read_watched_cases(select)
    found = now.touched(before, states.find_changed())
    assert [verdict.id for verdict in found.unreadable] == ["specs/support.cases.yaml"]
    assert found.cases == ()
    append("specs/triage.yaml")
    assert read_watched_cases(select).touched(now, states.find_changed()).unreadable == (), "it was reported"
    append("specs/support.cases.yaml", "# another comment\n")
    assert read_watched_cases(select).touched(now, states.find_changed()).unreadable


def test_new_file_of_cases_is_found(project: Path) -> None:
    before = read_watched_cases(select)
    states = FileStates(before.paths)
    shutil.copy("specs/triage.yaml", "specs/second.yaml")
    assert states.find_changed() == set()
    Path("specs/second.cases.yaml").write_text('agentrun: "1"\ncases: [{name: one}]\n', encoding="utf-8")
    changed = states.find_changed()
    now = read_watched_cases(select)
    assert [each.id for each in now.touched(before, changed).cases] == ["specs/second.cases.yaml::one"]
    new = [project / "specs/second.cases.yaml", project / "specs/second.yaml"]
    assert now.changed_names(before, changed) == new


def test_further_accepted_journal_touches_its_case(project: Path) -> None:
    other = project / "specs/__snapshots__/support/us.other.journal"
    assert touched_after(lambda: other.write_bytes(b"")) == {"support": ["us"]}
    assert touched_after(lambda: other.write_bytes(b"changed")) == {"support": ["us"]}
    assert touched_after(other.unlink) == {"support": ["us"]}


def test_only_complete_files_are_searched_for_unused_snapshots(project: Path) -> None:
    before = read_watched_cases(select)
    us = {project / "cassettes/support/us.yaml"}
    assert before.touched(before, us).complete_files == ()
    spec = {project / "specs/support.yaml"}
    assert [len(file) for file in before.touched(before, spec).complete_files] == [11]


def test_states_find_each_kind_of_change_once(tmp_path: Path) -> None:
    file = tmp_path / "a"
    states = FileStates([file])
    for change in (
        lambda: file.write_bytes(b"one"),
        lambda: file.write_bytes(b"other"),
        lambda: os.utime(file, ns=(1, 1)),
        lambda: os.replace(_copy(file), file),
        file.unlink,
    ):
        change()
        assert states.find_changed() == {file}
        assert states.find_changed() == set()


def _copy(file: Path) -> Path:
    """Another file with the same content and time."""
    return Path(shutil.copy2(file, file.with_name("b")))


def test_states_keep_what_they_know_of_a_file(tmp_path: Path) -> None:
    """A change between two rounds must not be lost when the list of files changes."""
    file, other = tmp_path / "a", tmp_path / "b"
    states = FileStates([file])
    file.write_bytes(b"one")
    states.watch([file, other])
    assert states.find_changed() == {file}


def test_paths_include_all_that_is_watched(project: Path) -> None:
    watched: WatchedCases = read_watched_cases(select)
    names = {path.relative_to(project).as_posix() for path in watched.paths if path.is_relative_to(project)}
    assert {"pyproject.toml", "specs", "specs/support.cases.yaml", "specs/prompts/tone.md"} <= names
