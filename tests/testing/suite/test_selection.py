"""Selection of cases by path, keyword, tag and shard."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.errors import RequestError
from agentrun.testing.suite.selection import CaseFilter, SelectedCases, parse_keyword, select_cases, shard_of

SPEC = 'agentrun: "1"\nname: small\nmodel: {provider: openai, name: x}\ninstructions: Hi\nbudgets: {tokens: 1k}\n'
CASES = 'agentrun: "1"\ncases:\n  - {name: one, tags: [net]}\n  - {name: two, tags: [slow, net]}\n  - {name: three}\n'


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("specs/a", "specs/b", "other/c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.yaml").write_text(SPEC, encoding="utf-8")
        (tmp_path / f"{name}.cases.yaml").write_text(CASES, encoding="utf-8")
    (tmp_path / "specs/alone.yaml").write_text(SPEC, encoding="utf-8")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)


def ids(found: SelectedCases) -> list[str]:
    return [each.id.replace(".cases.yaml", "") for each in found.cases]


@pytest.mark.parametrize(
    ("paths", "wanted"),
    [
        (["specs/a.yaml"], ["specs/a::one", "specs/a::two", "specs/a::three"]),
        (["specs/a.cases.yaml"], ["specs/a::one", "specs/a::two", "specs/a::three"]),
        (["specs/a.yaml::two"], ["specs/a::two"]),
        (["specs/a.cases.yaml::three", "specs/a.cases.yaml::one"], ["specs/a::three", "specs/a::one"]),
        (["specs/a.cases.yaml::two", "specs/a.yaml"], ["specs/a::one", "specs/a::two", "specs/a::three"]),
        (["specs/a.yaml", "specs/a.cases.yaml::two"], ["specs/a::one", "specs/a::two", "specs/a::three"]),
        (["specs/b.yaml::one", "specs/a.yaml::one", "specs/b.yaml::one"], ["specs/b::one", "specs/a::one"]),
    ],
)
def test_paths_select_cases(paths: list[str], wanted: list[str]) -> None:
    assert ids(select_cases(paths, CaseFilter())) == wanted


def test_folder_is_searched_in_order_of_names() -> None:
    found = select_cases(["."], CaseFilter())
    assert ids(found) == [f"{spec}::{name}" for spec in ("other/c", "specs/a", "specs/b") for name in NAMES]
    assert found.seen == 9
    assert [len(whole) for whole in found.complete_files] == [3, 3, 3]


NAMES = ("one", "two", "three")


@pytest.mark.parametrize(
    ("path", "message", "hint"),
    [
        ("nowhere", 'there is no file or folder "nowhere"', None),
        ("empty", '"empty" has no cases', None),
        ("specs/alone.yaml", "there is no specs/alone.cases.yaml", "record"),
        ("specs/a.yaml::tow", 'has no case "tow"', 'did you mean "two"?'),
        ("specs::one", "not a folder", None),
    ],
)
def test_path_without_a_case_is_refused(path: str, message: str, hint: str | None) -> None:
    with pytest.raises(RequestError) as raised:
        select_cases(["specs/a.yaml", path], CaseFilter())
    assert message in raised.value.message
    assert hint is None or hint in (raised.value.hint or "")
    assert raised.value.exit_code == 2


def test_keywords_and_tags_select_cases() -> None:
    assert ids(select_cases(["specs/a.yaml"], CaseFilter(keyword=parse_keyword("slow or three")))) == [
        "specs/a::two",
        "specs/a::three",
    ]
    assert ids(select_cases(["specs/a.yaml"], CaseFilter(tags=frozenset({"net"})))) == ["specs/a::one", "specs/a::two"]
    assert ids(select_cases(["specs/a.yaml"], CaseFilter(tags=frozenset({"slow", "gone"})))) == ["specs/a::two"]
    both = CaseFilter(tags=frozenset({"net"}), keyword=parse_keyword("not slow"))
    assert ids(select_cases(["specs/a.yaml"], both)) == ["specs/a::one"]


def test_partly_selected_file_is_not_complete() -> None:
    assert select_cases(["specs/a.yaml::one"], CaseFilter()).complete_files == ()
    assert select_cases(["specs/a.yaml"], CaseFilter(keyword=parse_keyword("one"))).complete_files == ()
    assert len(select_cases(["specs/a.yaml"], CaseFilter(keyword=parse_keyword("specs"))).complete_files) == 1


def test_unreadable_case_file_has_a_verdict_and_others_are_selected() -> None:
    Path("specs/a.cases.yaml").write_text('agentrun: "1"\ncases:\n  - {nam: one}\n', encoding="utf-8")
    found = select_cases(["specs"], CaseFilter())
    assert ids(found) == ["specs/b::one", "specs/b::two", "specs/b::three"]
    (verdict,) = found.unreadable
    assert (verdict.id, verdict.status, verdict.line) == ("specs/a.cases.yaml", "unreadable", 3)
    assert any("nam" in wrong.message for wrong in verdict.failures)


@given(st.lists(st.text(), unique=True), st.integers(1, 7))
def test_shards_partition_all_names(names: list[str], shards: int) -> None:
    parts = [[name for name in names if shard_of(name, shards) == part] for part in range(1, shards + 1)]
    assert sorted(name for part in parts for name in part) == sorted(names)


def test_shards_partition_the_cases() -> None:
    parts = [ids(select_cases(["."], CaseFilter(shard=(part, 3)))) for part in (1, 2, 3)]
    assert sorted(id for part in parts for id in part) == sorted(ids(select_cases(["."], CaseFilter())))
    assert parts == [ids(select_cases(["."], CaseFilter(shard=(part, 3)))) for part in (1, 2, 3)]
    assert select_cases(["specs/b.yaml"], CaseFilter(shard=(2, 3))).cases == tuple(
        each for each in select_cases(["."], CaseFilter(shard=(2, 3))).cases if each.id.startswith("specs/b")
    )


def test_the_shard_of_a_case_never_changes() -> None:
    assert [shard_of(f"specs/a.cases.yaml::{name}", 4) for name in NAMES] == [SHARDS[name] for name in NAMES]


SHARDS = {"one": 1, "two": 1, "three": 3}
