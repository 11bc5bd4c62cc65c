"""Selection of cassettes by path, and the cases that use each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrun.cassette.selection import LoadedCassette, load_selected, select_cassettes

from ..cli.desk_project import CASSETTE, add_cases, copy_cassette, edit


@pytest.fixture
def project_with_four_cassettes(desk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three cassettes with a case and one without, in the working directory."""
    for name in ("brief", "orphan", "short"):
        copy_cassette(desk, name)
    add_cases(desk, "name: brief", "name: short")
    monkeypatch.chdir(desk)
    return desk


def select(*paths: str | Path) -> list[LoadedCassette]:
    return [load_selected(file) for file in select_cassettes([Path(path) for path in paths])]


def owners(loaded: LoadedCassette) -> list[str]:
    return [f"{owner.spec_label}::{owner.case.name}" for owner in loaded.owners]


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("cassettes", 4),
        ("cassettes/desk", 4),
        ("specs", 4),
        (".", 4),
        ("specs/desk.yaml", 4),
        ("specs/desk.cases.yaml", 4),
        (CASSETTE, 1),
        ("python", 0),
    ],
)
def test_path_selects_cassettes(project_with_four_cassettes: Path, path: str, count: int) -> None:
    assert len(select(path)) == count
    assert len(select(path, path)) == count


def test_without_a_path_all_cassettes_of_the_project_are_selected(project_with_four_cassettes: Path) -> None:
    assert {each.file.label: owners(each) for each in select()} == {
        "cassettes/desk/brief.yaml": ["specs/desk.yaml::brief"],
        "cassettes/desk/default.yaml": ["specs/desk.yaml::default"],
        "cassettes/desk/orphan.yaml": [],
        "cassettes/desk/short.yaml": ["specs/desk.yaml::short"],
    }


def test_cassette_folder_is_named_after_the_spec_name(desk: Path) -> None:
    """The folder is named for the spec's name, not for its file."""
    (desk / "specs/desk.yaml").rename(desk / "specs/office.yaml")
    (desk / "specs/desk.cases.yaml").rename(desk / "specs/office.cases.yaml")
    (found,) = select(desk)
    assert [owner.spec.name for owner in found.owners] == ["office.yaml"]
    edit(desk / "specs/office.yaml", "name: desk\n", "name: office\n")
    (found,) = select(desk)
    assert found.owners == ()


def test_cassette_belongs_to_the_spec_that_recorded_it(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for ending in (".yaml", ".cases.yaml"):
        (desk / f"specs/again{ending}").write_bytes((desk / f"specs/desk{ending}").read_bytes())
    for folder in (desk, desk.parent):
        monkeypatch.chdir(folder)
        (found,) = select(desk / CASSETTE)
        assert [owner.spec.name for owner in found.owners] == ["desk.yaml"]
        assert len(found.file.specs) == 2


def test_nested_project_does_not_own_outer_cassettes(desk: Path) -> None:
    inner = desk / "inner"
    inner.mkdir()
    (desk / "specs").rename(inner / "specs")
    (found,) = select(desk)
    assert [owner.spec for owner in found.owners] == [inner.resolve() / "specs/desk.yaml"]
    (inner / "pyproject.toml").write_text("[tool.agentrun]\n")
    (found,) = select(desk)
    assert found.owners == ()


def test_every_file_in_the_cassette_folder_is_selected(desk: Path) -> None:
    """Not even a file that looks like a spec."""
    (desk / CASSETTE).write_text('agentrun: "1"\n' + (desk / CASSETTE).read_text())
    (desk / "cassettes/loose.yaml").write_text("agentrun: 1\n")
    assert [(each.file.path.name, each.cassette is None) for each in select(desk)] == [
        ("loose.yaml", True),
        ("default.yaml", False),
    ]


def test_cassette_outside_of_a_project_has_no_cases(desk: Path) -> None:
    """A folder outside every project, with the cassette of another program in it."""
    folder = desk.parent / "elsewhere"
    folder.mkdir()
    (folder / "a.yaml").write_bytes((desk / CASSETTE).read_bytes())
    (folder / "spec.yaml").write_bytes((desk / "specs/desk.yaml").read_bytes())
    (found,) = select(folder)
    assert (found.file.path.name, found.owners, found.file.is_in_place) == ("a.yaml", (), False)


def test_unreadable_spec_is_reported_with_the_cassette(desk: Path) -> None:
    edit(desk / "specs/desk.yaml", "name: desk\n", "name: [\n")
    (found,) = select(desk)
    assert found.owners == ()
    assert found.file.unreadable is not None
    assert found.file.unreadable.endswith("specs/desk.yaml")
