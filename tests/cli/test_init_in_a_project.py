"""`agentrun init .` in a project that exists: it adds what is missing and overwrites nothing."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from agentrun.cli.init import plan_changes

from ..named_cases import case
from .command import SCRIPT, agentrun
from .shop_project import Project
from .terminal_user import at_terminal

PYPROJECT = '[project]\nname = "shop"\nversion = "1"\n\n[tool.ruff]\nline-length = 100'


def file_contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    (tmp_path / ".gitignore").write_text("*.pyc\n/.env\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "shop.py").write_text("")
    return tmp_path


def test_existing_project_gets_what_is_missing(project: Path) -> None:
    done = agentrun("init", ".", cwd=project)
    assert (done.code, done.out) == (0, ""), done.err
    text = (project / "pyproject.toml").read_text()
    assert text == f'{PYPROJECT}\n\n[tool.agentrun]\nimport_roots = ["specs", "src"]\n'
    assert tomllib.loads(text)["tool"]["ruff"] == {"line-length": 100}
    assert (project / ".gitignore").read_text() == "*.pyc\n/.env\n.agentrun/\nagents.xml\n"
    schemas = json.loads((project / ".vscode/settings.json").read_text())["yaml.schemas"]
    assert all((project / path).exists() for path in schemas)
    assert (project / ".github/workflows/agents.yml").exists()
    tested = agentrun("test", "--coverage", cwd=project)
    assert (tested.code, "specs/hello.yaml: 50.0 % (2 of 4)" in tested.out + tested.err) == (0, True), tested.out
    assert agentrun("validate", "--strict", "specs/", cwd=project).code == 0
    before = file_contents(project)
    again = agentrun("init", ".", cwd=project)
    assert (again.code, file_contents(project)) == (0, before)


def test_changes_are_shown_before_they_are_made(project: Path) -> None:
    shown = agentrun("init", ".", cwd=project).err
    for line in ("  specs/hello.yaml: new", "  pyproject.toml: add", "    + [tool.agentrun]", "    + agents.xml"):
        assert line in shown.splitlines(), line


def test_nothing_that_exists_is_overwritten(project: Path) -> None:
    mine = {
        "specs/hello.yaml": b"mine",
        ".github/workflows/agents.yml": b"mine",
        ".vscode/settings.json": b'{"yaml.schemas": {}}',
        "schemas/agent.schema.json": b"{}",
        "pyproject.toml": b'[tool.agentrun]\nimport_roots = ["src"]\n',
        ".gitignore": b".agentrun\n.env\r\nagents.xml",
    }
    for name, content in mine.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_bytes(content)
    done = agentrun("init", ".", cwd=project)
    assert done.code == 0, done.err
    after = file_contents(project)
    assert {name: after[name] for name in mine} == mine
    assert "specs/hello.yaml: exists; the example is left out" in done.err
    assert not (project / "specs" / "hello.cases.yaml").exists(), "half an example would not work"


def test_line_ends_of_an_existing_file_stay(project: Path) -> None:
    (project / "pyproject.toml").write_bytes(b'[project]\r\nname = "shop"\r\n')
    assert agentrun("init", ".", cwd=project).code == 0
    text = (project / "pyproject.toml").read_bytes()
    assert text == b'[project]\r\nname = "shop"\r\n\r\n[tool.agentrun]\r\nimport_roots = ["specs", "src"]\r\n'


SETTINGS = ("", "{}", "{ \n }", '{"a": 1}', '{\n  "a": {"b": [1]}\n}\n', '\r\n{\r\n  "a": 1\r\n}')


def test_editor_settings_get_the_schemas(project: Path) -> None:
    path = project / ".vscode" / "settings.json"
    path.parent.mkdir()
    for before in SETTINGS:
        with case(before):
            path.write_bytes(before.encode())
            (change,) = plan_changes(project, {".vscode/settings.json": b""})
            assert change.content is not None
            after = change.content.decode()
            added = {"yaml.schemas": json.loads(after)["yaml.schemas"]}
            assert json.loads(after) == {**json.loads(before or "{}"), **added}
            assert ("\r\n" in after) is ("\r\n" in before)
    done = agentrun("init", ".", cwd=project)
    assert '    +   "yaml.schemas": {' in done.err.splitlines()
    assert "./schemas/agent.schema.json" in json.loads(path.read_text(encoding="utf-8"))["yaml.schemas"]


def test_editor_settings_that_are_no_object_are_refused(project: Path) -> None:
    path = project / ".vscode" / "settings.json"
    path.parent.mkdir()
    path.write_text("[]", encoding="utf-8")
    before = file_contents(project)
    done = agentrun("init", ".", cwd=project)
    assert (done.code, "it is not a JSON object; nothing was written" in done.err) == (2, True), done.err
    assert file_contents(project) == before


def test_comments_in_editor_settings_stay(project: Path) -> None:
    """They may look like the beginning of the object."""
    before = '// {mine\n/* {\n */ {\n  // tabs {\n  "editor.tabSize": 2, // two\n}\n'
    path = project / ".vscode" / "settings.json"
    path.parent.mkdir()
    path.write_text(before, encoding="utf-8")
    assert agentrun("init", ".", cwd=project).code == 0
    start, end = "// {mine\n/* {\n */ {", '\n  // tabs {\n  "editor.tabSize": 2, // two\n}\n'
    after = path.read_text(encoding="utf-8")
    assert (after.startswith(f'{start}\n  "yaml.schemas": {{\n'), after.endswith(f"  }},{end}")) == (True, True)


@pytest.mark.parametrize("name", ["pyproject.toml", ".gitignore", "specs", ".github"])
def test_link_is_refused_and_nothing_is_written(project: Path, name: str) -> None:
    other = project.parent / f"{project.name}-other"
    other.mkdir()
    target = other / name
    if name in ("pyproject.toml", ".gitignore"):
        target.write_text("")
    else:
        target.mkdir()
    (project / name).unlink(missing_ok=True)
    (project / name).symlink_to(target)
    before = file_contents(project)
    done = agentrun("init", ".", cwd=project)
    assert (done.code, "symbolic links are not followed, so nothing was written" in done.err) == (2, True), done.err
    assert (file_contents(project), list(other.rglob("*"))) == (before, [target])


def test_next_commands_begin_where_the_user_is(project: Path) -> None:
    assert "Next:\n  agentrun specs/hello.yaml\n" in agentrun("init", ".", cwd=project).err
    assert "Next:\n  cd 'my agent'\n  agentrun specs/hello.yaml\n" in agentrun("init", "my agent", cwd=project).err


INLINE = b"tool = {ruff = {line-length = 100}}\n"


@pytest.mark.parametrize("content", [b"[project\n", b"\xff", INLINE], ids=["not TOML", "not UTF-8", "inline table"])
def test_unreadable_pyproject_is_refused_and_nothing_is_written(project: Path, content: bytes) -> None:
    (project / "pyproject.toml").write_bytes(content)
    before = file_contents(project)
    done = agentrun("init", ".", cwd=project)
    assert (done.code, "nothing was written" in done.err) == (2, True)
    assert file_contents(project) == before


def test_a_folder_in_the_place_of_a_file_is_refused(project: Path) -> None:
    (project / ".vscode" / "settings.json").mkdir(parents=True)
    before = file_contents(project)
    assert agentrun("init", ".", cwd=project).code == 2
    assert file_contents(project) == before


@pytest.mark.parametrize(("typed", "code"), [("n\n", 130), ("y\n", 0)])
def test_terminal_is_asked_before_existing_files_get_lines(tmp_path: Path, typed: str, code: int) -> None:
    shop = Project(tmp_path)
    shop.edit("pyproject.toml", "[tool.agentrun]\n", PYPROJECT)
    before = file_contents(tmp_path)
    with at_terminal(shop, {}, command=[SCRIPT, "init", "."], rows=60) as person:
        assert "+ [tool.agentrun]" in person.until("Continue? [Y/n]")
        assert file_contents(tmp_path) == before
        person.type(typed)
        assert person.end()[0] == code
    assert ("[tool.agentrun]" in (tmp_path / "pyproject.toml").read_text()) is (code == 0)
    assert code == 0 or file_contents(tmp_path) == before
