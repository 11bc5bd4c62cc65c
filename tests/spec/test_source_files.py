"""The project of a spec, and reading files only inside of it."""

import errno
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from agentrun.errors import HostError
from agentrun.spec.problems import PROBLEM_CODES, DocumentError, Problem, render_problem
from agentrun.spec.project import Project, find_project, find_working_project, project_root
from agentrun.spec.source_files import MAX_FILE_BYTES, FileRefused, display_path, read_project_file, read_source


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "project"
    for name in ("specs/prompts/support.md", "specs/agent.yaml", "shared/tools.yaml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"text of {name}\n", encoding="utf-8")
    (folder.parent / "outside.txt").write_text("CONTENT-OUTSIDE", encoding="utf-8")
    return folder


def refusal_of(root: Path, ref: str, base: str = "specs") -> FileRefused:
    with pytest.raises(FileRefused) as error:
        read_project_file(root, root / base, ref)
    refusal = error.value
    assert refusal.code in PROBLEM_CODES
    assert "CONTENT" not in f"{refusal} {refusal.hint}"
    assert str(root.parent) not in f"{refusal} {refusal.hint}"
    return refusal


class TestReadProjectFile:
    @pytest.mark.parametrize(
        ("ref", "name"),
        [
            ("prompts/support.md", "specs/prompts/support.md"),
            ("./prompts//./support.md", "specs/prompts/support.md"),
            ("../shared/tools.yaml", "shared/tools.yaml"),
            ("prompts/../../specs/agent.yaml", "specs/agent.yaml"),
        ],
    )
    def test_file_inside_the_project_is_read(self, root: Path, ref: str, name: str) -> None:
        source = read_project_file(root, root / "specs", ref)
        assert (source.path, source.display_name, source.text) == (root / name, name, f"text of {name}\n")

    @pytest.mark.parametrize(
        "ref",
        [
            "../../outside.txt",
            "../../../etc/passwd",
            "/etc/passwd",
            "prompts/../../../outside.txt",
            "C:\\x",
            "c:/x",
            "..\\x",
            "prompts\\support.md",
            "//host/share",
            "../..",
            "../../project/specs/agent.yaml",
        ],
    )
    def test_file_outside_the_project_is_refused(self, root: Path, ref: str) -> None:
        refusal = refusal_of(root, ref)
        assert refusal.code == "spec.file_outside"
        assert ref in refusal.message

    def test_document_outside_the_project_cannot_read_files(self, root: Path) -> None:
        with pytest.raises(FileRefused, match="not inside the project"):
            read_project_file(root, root.parent, "outside.txt")

    @pytest.mark.parametrize("ref", ["", " ", "a\0b", "prompts/", "prompts/support.md/"])
    def test_empty_or_malformed_name_is_refused(self, root: Path, ref: str) -> None:
        assert refusal_of(root, ref).code == "spec.file_missing"

    @pytest.mark.parametrize("ref", ["prompts", ".", "..", "prompts/..", "../shared"])
    def test_folder_is_refused(self, root: Path, ref: str) -> None:
        assert refusal_of(root, ref).code == "spec.file_unreadable"

    def test_missing_file_is_reported_with_a_hint(self, root: Path) -> None:
        refusal = refusal_of(root, "prompts/suport.md")
        assert (refusal.code, refusal.hint) == ("spec.file_missing", 'did you mean "support.md"?')
        assert refusal_of(root, "nothing/here.md").code == "spec.file_missing"
        assert refusal_of(root, "zebra").hint is None
        assert refusal_of(root, "agent.yaml/x").code in ("spec.file_missing", "spec.file_unreadable")

    @pytest.mark.parametrize("ref", ["n" * 300, "a/" * 3000 + "b", "\ud800", "é\u202e\x1b[2J"])
    def test_strange_name_gives_a_short_printable_message(self, root: Path, ref: str) -> None:
        refusal = refusal_of(root, ref)
        assert refusal.code in ("spec.file_missing", "spec.file_unreadable")
        assert refusal.message.isprintable()
        assert len(refusal.message) < 150

    @pytest.mark.parametrize("target", ["../../outside.txt", "agent.yaml", "nowhere", "link.md"])
    def test_symlinked_file_is_refused(self, root: Path, target: str) -> None:
        (root / "specs/link.md").symlink_to(target)
        assert refusal_of(root, "link.md").code in (
            "spec.file_outside",
            "spec.file_missing",
            "spec.file_unreadable",
        )
        if target in ("../../outside.txt", "agent.yaml"):
            assert "symbolic link" in refusal_of(root, "link.md").message

    @pytest.mark.parametrize("target", ["../..", "prompts"])
    def test_symlinked_folder_is_refused(self, root: Path, target: str) -> None:
        (root / "specs/linked").symlink_to(target, target_is_directory=True)
        (root.parent / "support.md").write_text("CONTENT", encoding="utf-8")
        assert refusal_of(root, "linked/support.md").code == "spec.file_outside"

    def test_project_root_may_be_a_symlink(self, root: Path) -> None:
        link = root.parent / "link"
        link.symlink_to(root, target_is_directory=True)
        assert read_project_file(link, link / "specs", "agent.yaml").path == root / "specs/agent.yaml"

    def test_pipes_and_sockets_are_refused(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        os.mkfifo(root / "specs/pipe")
        assert refusal_of(root, "pipe").code == "spec.file_unreadable"
        with socket.socket(socket.AF_UNIX) as server:
            monkeypatch.chdir(root / "specs")  # the name of a socket must be short
            server.bind("sock")
            assert refusal_of(root, "sock").code == "spec.file_unreadable"

    def test_large_and_non_utf8_files_are_refused(self, root: Path) -> None:
        (root / "specs/a").write_bytes(b"x" * MAX_FILE_BYTES)
        assert len(read_project_file(root, root / "specs", "a").text) == MAX_FILE_BYTES
        (root / "specs/a").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
        assert refusal_of(root, "a").code == "spec.too_large"
        (root / "specs/a").write_bytes(b"one\n\xff")
        assert refusal_of(root, "a").message == '"a" is not UTF-8 (line 2)'

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_file_without_permission_is_refused(self, root: Path) -> None:
        (root / "specs/agent.yaml").chmod(0)
        assert refusal_of(root, "agent.yaml").code == "spec.file_unreadable"

    def test_no_file_descriptor_leaks(self, root: Path) -> None:
        count = len(os.listdir("/dev/fd"))
        for ref in ("agent.yaml", "prompts/support.md", "prompts/x", "prompts", "x/y/z", "agent.yaml/x"):
            with suppress(FileRefused):
                read_project_file(root, root / "specs", ref)
        assert len(os.listdir("/dev/fd")) == count


def test_folder_swapped_for_a_symlink_is_not_followed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder replaced by a link while the walk is under way is not followed."""
    real = os.open
    (root.parent / "evil").mkdir()
    (root.parent / "evil/support.md").write_text("CONTENT", encoding="utf-8")

    def swapping(path: str, flags: int, *rest: int, dir_fd: int | None = None) -> int:
        if path == "support.md":
            (root / "specs/prompts").rename(root / "specs/moved")
            (root / "specs/prompts").symlink_to(root.parent / "evil", target_is_directory=True)
        return real(path, flags, *rest, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swapping)
    assert read_project_file(root, root / "specs", "prompts/support.md").text == "text of specs/prompts/support.md\n"


class TestReadSource:
    @pytest.mark.parametrize(
        ("data", "text"),
        [
            (b"a\r\nb\rc\n", "a\nb\nc\n"),
            (b"\xef\xbb\xbfname: x", "name: x"),
            (b"\xef\xbb\xbf\xef\xbb\xbfx", "\ufeffx"),
            ("é😀\u2028".encode(), "é😀\u2028"),
            (b"", ""),
        ],
    )
    def test_newlines_and_bom_are_normalised(self, tmp_path: Path, data: bytes, text: str) -> None:
        (tmp_path / "a.yaml").write_bytes(data)
        assert read_source(tmp_path / "a.yaml").text == text

    @pytest.mark.parametrize(
        ("data", "code", "line"),
        [
            ("name".encode("utf-16"), "spec.encoding", 1),
            (b"\xfe\xff\0n", "spec.encoding", 1),
            ("name".encode("utf-16-le"), "spec.encoding", 1),
            (b"a\nb\0", "spec.encoding", 2),
            (b"a\n\nb\xc0\xaf", "spec.encoding", 3),
            (b"\xed\xa0\x80", "spec.encoding", 1),
            (b"x" * (MAX_FILE_BYTES + 1), "spec.too_large", 1),
        ],
    )
    def test_unreadable_text_is_reported_at_its_line(self, tmp_path: Path, data: bytes, code: str, line: int) -> None:
        (tmp_path / "a.yaml").write_bytes(data)
        (problem,) = self.problems(tmp_path / "a.yaml")
        assert (problem.code, problem.line) == (code, line)

    def test_missing_path_folder_or_pipe_is_reported(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        for name, code in [
            ("x", "missing"),
            (".", "unreadable"),
            ("pipe", "unreadable"),
            ("a\0b", "unreadable"),
        ]:
            assert self.problems(tmp_path / name)[0].code == f"spec.file_{code}"
        assert self.problems(Path("/dev/zero"))[0].code == "spec.file_unreadable"

    def problems(self, path: Path) -> list[Problem]:
        with pytest.raises(DocumentError) as error:
            read_source(path)
        assert all(problem.file == display_path(path) for problem in error.value.problems)
        return error.value.problems

    def test_huge_file_is_not_read(self, tmp_path: Path) -> None:
        with (tmp_path / "sparse").open("wb") as file:
            file.truncate(50 * 1024**3)
        assert self.problems(tmp_path / "sparse")[0].code == "spec.too_large"

    def test_source_path_is_resolved(self, root: Path) -> None:
        link = root.parent / "link"
        link.symlink_to(root, target_is_directory=True)
        assert read_source(link / "specs/agent.yaml").path == root / "specs/agent.yaml"


def test_display_path_is_relative_to_the_working_directory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = root / "specs/agent.yaml"
    monkeypatch.chdir(root)
    assert display_path(spec) == "specs/agent.yaml"
    assert display_path(Path("specs/../specs/agent.yaml")) == "specs/agent.yaml"
    monkeypatch.chdir(root / "specs/prompts")
    assert display_path(spec, root) == "specs/agent.yaml"
    assert display_path(spec) == str(spec)
    assert display_path(Path("../agent.yaml")) == "../agent.yaml"


class TestProject:
    def settings(self, root: Path, text: str) -> list[Problem]:
        (root / "pyproject.toml").write_text(text, encoding="utf-8")
        with pytest.raises(DocumentError) as error:
            find_project(root / "specs/agent.yaml")
        assert all(render_problem(problem) and problem.code == "spec.project" for problem in error.value.problems)
        return error.value.problems

    def test_project_root_is_the_nearest_marker(self, root: Path) -> None:
        spec = root / "specs/agent.yaml"
        assert project_root(spec) == root / "specs"
        (root / ".git").write_text("gitdir: elsewhere", encoding="utf-8")
        assert project_root(spec) == root
        (root / "specs/pyproject.toml").write_text("[tool.other]\nname = 'agentrun'", encoding="utf-8")
        assert project_root(spec) == root
        (root / "specs/pyproject.toml").write_text("[tool.agentrun]", encoding="utf-8")
        assert project_root(spec) == root / "specs"
        (root / "specs/pyproject.toml").write_text("[tool]\nagentrun = {}", encoding="utf-8")
        assert project_root(spec) == root / "specs"

    def test_command_without_a_spec_uses_the_nearest_project(self, root: Path) -> None:
        folder = root / "specs/prompts"
        assert find_working_project(folder).root == folder
        (root / ".git").mkdir()
        assert find_working_project(folder).root == root
        (root / "specs/.agentrun").mkdir()
        assert find_working_project(folder).root == root / "specs"
        (folder / "pyproject.toml").write_text("[tool.agentrun]\nstore = 'var'\n", encoding="utf-8")
        assert find_working_project(folder) == Project(folder, store="var")

    def test_working_directory_may_be_reached_through_a_link(self, root: Path) -> None:
        (root / "specs/.agentrun").mkdir()
        (root / "linked").symlink_to(root / "specs/prompts")
        assert find_working_project(root / "linked").root == root / "specs"

    def test_project_defaults(self, root: Path) -> None:
        project = find_project(root / "specs/agent.yaml")
        assert project == Project(root / "specs", (".",), "cassettes", ".agentrun")

    def test_project_settings_from_pyproject(self, root: Path) -> None:
        text = '[tool.agentrun]\nimport_roots = ["specs", "src/x"]\ncassettes = "tests/cassettes"\nstore = "var"\n'
        (root / "pyproject.toml").write_text(text, encoding="utf-8")
        assert find_project(root / "specs/agent.yaml") == Project(root, ("specs", "src/x"), "tests/cassettes", "var")

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            ('import_root = ["x"]', 'did you mean "import_roots"?'),
            ("zebra = 1", "known: import_roots, cassettes, store"),
            ('import_roots = "x"', "a list of folders"),
            ("import_roots = [1]", "a list of folders"),
            ("cassettes = 1", "the name of a folder"),
            ('cassettes = ["x"]', "the name of a folder"),
            ('cassettes = "/tmp/x"', "not a folder inside"),
            ('cassettes = "../x"', "not a folder inside"),
            ('cassettes = "a/../../x"', "not a folder inside"),
            ('cassettes = "C:x"', "not a folder inside"),
            ("cassettes = 'a\\b'", "not a folder inside"),
            ('cassettes = ""', "not a folder inside"),
            ('store = "linked/x"', "not a folder inside"),
            ('store = "."', "cannot be the project root"),
            ('store = "x/.."', "cannot be the project root"),
            ('store = "none"', "set AGENTRUN_STORE=none"),
            ('data = "x"', "the setting is now called store"),
            ('import_roots = [".", "../lib"]', "not a folder inside"),
        ],
    )
    def test_invalid_project_setting_is_reported(self, root: Path, line: str, said: str) -> None:
        (root / "linked").symlink_to(root.parent, target_is_directory=True)
        (problem,) = self.settings(root, f"[project]\nname = 'store'\n\n[tool.agentrun]\n{line}\n")
        assert said in f"{problem.message} {problem.hint}"
        assert (problem.line, problem.column) == (5, 1)

    def test_all_invalid_settings_are_reported_at_once(self, root: Path) -> None:
        found = self.settings(root, "[tool.agentrun]\nstore = 1\ncassettes = 2\nx = 3\n")
        assert [problem.line for problem in found] == [2, 3, 4]

    def test_invalid_toml_is_reported_at_its_place(self, root: Path) -> None:
        (problem,) = self.settings(root, "[tool.agentrun]\nstore = \n")
        assert (problem.line, problem.column) == (2, 9)
        (problem,) = self.settings(root, "[tool]\nagentrun = 5\n")
        assert (problem.line, problem.message) == (2, "[tool.agentrun] must be a table")

    def test_variable_names_the_store_or_none(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AGENTRUN_STORE", str(root / "elsewhere"))
        assert find_project(root / "specs/agent.yaml").store_directory == root / "elsewhere"
        monkeypatch.setenv("AGENTRUN_STORE", "none")
        project = find_project(root / "specs/agent.yaml")
        assert (project.stores_runs, project.store) == (False, ".agentrun")
        monkeypatch.setenv("AGENTRUN_DATA", "x")
        with pytest.raises(HostError, match="AGENTRUN_DATA is no longer a setting") as caught:
            find_project(root / "specs/agent.yaml")
        assert caught.value.hint == "set AGENTRUN_STORE instead, and remove AGENTRUN_DATA"

    @pytest.mark.parametrize("data", [b"\xff\xfe", b"[broken", b"agentrun = [" * 20_000, b"x" * (MAX_FILE_BYTES + 1)])
    def test_unreadable_pyproject_above_is_ignored(self, root: Path, data: bytes) -> None:
        (root / "pyproject.toml").write_bytes(data)
        assert find_project(root / "specs/agent.yaml").root == root / "specs"

    def test_deeply_nested_toml_is_refused(self, root: Path) -> None:
        (problem,) = self.settings(root, "[tool.agentrun]\nstore = " + "[" * 20_000)
        assert problem.message == "pyproject.toml is not valid TOML"

    def test_pyproject_that_is_a_pipe_does_not_block(self, root: Path) -> None:
        os.mkfifo(root / "pyproject.toml")
        assert stat.S_ISFIFO((root / "pyproject.toml").stat().st_mode)
        assert project_root(root / "specs/agent.yaml") == root / "specs"


def test_settings_that_cannot_be_read_are_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They could name secrets, or another store."""
    (tmp_path / "pyproject.toml").write_text("[tool.agentrun]\n", encoding="utf-8")
    open_file = os.open

    def fail(path: Path, *args: int) -> int:
        if Path(path).name == "pyproject.toml":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return open_file(path, *args)

    monkeypatch.setattr(os, "open", fail)
    for find, path in ((find_project, tmp_path / "specs/spec.yaml"), (find_working_project, tmp_path)):
        with pytest.raises(DocumentError) as error:
            find(path)
        (problem,) = error.value.problems
        assert (problem.code, str(problem.place)) == ("spec.file_unreadable", "pyproject.toml:1:1")
