"""THREATS group A, rows 1, 2, 4 to 8 and 13, hostile spec files within a number of steps and 64 MiB.

Every row runs in a process of its own, so that what one leaves behind cannot hide what the next one takes.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .. import steps
from ..cli import forked_command

MIB = 1024 * 1024
STEPS = 6_000_000
"""The most for one file. The costliest one takes 2 million."""

# Reads the files given, as text with surrogates if need be, and prints what was found and what it cost.
ATTACK = (
    Path(steps.__file__).read_text(encoding="utf-8")
    + f"STEPS = {STEPS}"
    + """
import json, resource, sys
from pathlib import Path
from agentrun.spec.yaml_parser import DocumentError, parse_yaml_document
from agentrun.spec.source_files import FileRefused, read_project_file, read_source
from agentrun.spec.problems import Source, render_problem
from agentrun.spec.tree import plain_data

def used():
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count what the process was copied from
        return int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

def attack(file, ref, raw):
    if ref is not None:
        source = read_project_file(file.parent, file.parent, ref)
    elif raw:
        source = Source(file, file.name, file.read_bytes().decode("utf-8", "surrogatepass"))
    else:
        source = read_source(file)
    return plain_data(parse_yaml_document(source))

results = []
plain_data(parse_yaml_document(Source(Path("/warm"), "warm", "a: 1")))
if Path("/proc/self/clear_refs").exists():
    Path("/proc/self/clear_refs").write_text("5")  # forgets the height of what the process was copied from
baseline = used()
for file, ref, raw in json.loads(sys.argv[1]):
    codes, value, told = [], None, ""
    try:
        with at_most(STEPS):
            value = attack(Path(file), ref, raw)
    except DocumentError as error:
        codes = [problem.code for problem in error.problems]
        told = "\\n".join(map(render_problem, error.problems)) + json.dumps([p.as_json() for p in error.problems])
    except FileRefused as error:
        codes, told = [error.code], f"{error.message} {error.hint}"
    value = value if len(str(value)) < 1000 else "large"
    results.append({"codes": codes, "value": value, "told": told, "memory": used() - baseline})
print(json.dumps(results))
"""
)


class Result:
    """What came of one attack: the codes of its problems, what was told of them, and what was read."""

    def __init__(self, raw: dict[str, Any]) -> None:
        assert raw["memory"] < 64 * MIB
        self.codes: list[str] = raw["codes"]
        self.value: Any = raw["value"]
        self.told: str = raw["told"].replace("\n", "")
        assert self.told.isprintable()


def run(cases: list[tuple[Path, str | None, bool]], script: str = ATTACK) -> list[Result]:
    """All cases in one process that has read no other."""
    listed = json.dumps([(str(file), ref, raw) for file, ref, raw in cases])
    if forked_command.can_fork(()):
        done = forked_command.run([listed], Path.cwd(), os.environ, b"", 600, script)
    else:
        command, environment = [sys.executable, "-c", script, listed], {**os.environ, "PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run(command, env=environment, capture_output=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return [Result(raw) for raw in json.loads(done.stdout)]


def attack(folder: Path, *texts: str | bytes, raw: bool = False) -> list[Result]:
    """Specs with these texts, each read and parsed; `raw` brings them past the reading of files."""
    cases: list[tuple[Path, str | None, bool]] = []
    for number, text in enumerate(texts):
        path = folder / f"spec{number}.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        cases.append((path, None, raw))
    return run(cases)


def codes(results: list[Result]) -> set[str]:
    assert all(result.codes and result.value is None for result in results)
    return {code for result in results for code in result.codes}


def bomb(levels: int, uses: int) -> str:
    lines = ["a0: &a0 [" + "x," * uses + "]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [" + ",".join([f"*a{level - 1}"] * uses) + "]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("taken", "seen"),
    [("bytearray(65 * 1024 * 1024)", r"assert \S+ < "), ("all(map(lambda _: True, range(10_000_000)))", "steps")],
)
def test_measurement_detects_excess_memory_and_steps(tmp_path: Path, taken: str, seen: str) -> None:
    """The twin of all the others: a parser that takes too much is noticed."""
    (tmp_path / "spec.yaml").write_text("a: 1", encoding="utf-8")
    greedy = ATTACK.replace("value = attack(", f"_ = {taken}; value = attack(")
    with pytest.raises(AssertionError, match=seen):
        run([(tmp_path / "spec.yaml", None, False)], greedy)


def test_1_alias_bomb_is_refused(tmp_path: Path) -> None:
    assert codes(attack(tmp_path, bomb(9, 9), bomb(40, 2), bomb(3, 99))) == {"spec.alias_limit"}


def test_2_merge_key_bomb_is_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 {k: v}"]
    for level in range(1, 9):
        lines.append(f"a{level}: &a{level} {{<<: [" + ",".join([f"*a{level - 1}"] * 9) + "]}")
    assert "spec.merge_key" in codes(attack(tmp_path, "\n".join(lines)))


def test_4_deep_nesting_is_refused(tmp_path: Path) -> None:
    pieces = ["[", "{", '{"a":', "- ", "? ", "[[", "[{a: ", "a:\n "]
    results = attack(tmp_path, *(piece * n for piece in pieces for n in (5000, (MIB - 1) // len(piece))))
    assert "spec.depth_limit" in codes(results)


def test_5_duplicate_key_is_refused_with_both_places(tmp_path: Path) -> None:
    (result,) = attack(tmp_path, "policy: {default: deny}\ntools: {}\npolicy: {default: allow}\n")
    assert result.codes == ["spec.duplicate_key"]
    assert "spec0.yaml:3:1" in result.told
    assert "already set at line 1, column 1" in result.told


def test_6_tags_are_refused(tmp_path: Path) -> None:
    tags = [
        "!!python/object/apply:os.system",
        "!!python/name:os.system",
        "!!binary",
        "!!set",
        "!",
        "!x",
        "!<x>",
    ]
    assert codes(attack(tmp_path, *(f"a: {tag} ['touch pwned']" for tag in tags))) == {"spec.tag"}


def test_7_implicit_types_stay_text(tmp_path: Path) -> None:
    words = ["no", "on", "yes", "1_000", "1:30", "2025-01-01", "0b11", "1_0.5", "=", "<<"]
    results = attack(tmp_path, *(f"a: {word}" for word in words))
    assert [result.value for result in results] == [{"a": word} for word in words]


def test_7_ambiguous_numbers_are_refused(tmp_path: Path) -> None:
    words = ["012", "-012", ".inf", "-.inf", ".nan", "1e999", "1e-999", "9007199254740992", "1" * 5000]
    assert codes(attack(tmp_path, *(f"a: {word}" for word in words))) == {"spec.number"}


def test_8_too_large_file_is_refused(tmp_path: Path) -> None:
    big = b"a: '" + b"x" * 50 * MIB
    assert codes(attack(tmp_path, big, b"x" * (MIB + 1))) == {"spec.too_large"}
    assert codes(attack(tmp_path, b"x" * (MIB + 1), raw=True)) == {"spec.too_large"}


def test_8_other_encodings_are_refused(tmp_path: Path) -> None:
    data = [b"a: x\0y", b"a: \xff", b"a: \xed\xa0\x80", b"\0" * MIB, b"\xfe\xff", b"a: \xc0\x80"]
    utf16 = ["a: 1".encode(name) for name in ("utf-16", "utf-16-be", "utf-16-le", "utf-32")]
    assert codes(attack(tmp_path, *data, *utf16)) == {"spec.encoding"}


def test_8_parser_refuses_control_characters_and_surrogates(tmp_path: Path) -> None:
    data = [b"a: x\0y", b"a: \xed\xa0\x80", b"\0" * MIB, b"a: \xe2\x80\xa8", b"a: \x1b[2J"]
    assert codes(attack(tmp_path, *data, raw=True)) == {"spec.encoding"}


def test_8_direction_overrides_are_escaped(tmp_path: Path) -> None:
    (result,) = attack(tmp_path, "na\u202eme: 1\nna\u202eme: 2\u200b")
    assert result.codes == ["spec.duplicate_key"]
    assert "na\\u202eme" in result.told


MEGABYTES = [
    "[" + "a," * 99_990 + "]",
    "{" + ",".join(f"k{i}: {i}" for i in range(49_990)) + "}",
    "".join(f"- &a{i} x\n" for i in range(70_000)),
    "a: 1\n" * 200_000,
    "a: '" + "x" * (MIB - 10) + "'",
    "a: " + "x\n " * 300_000,
    "a: |\n" + "  x\n" * 250_000,
    "{" + "{a: b}: c," * 90_000 + "}",
    "? " * 500_000,
    "#\n" * 500_000,
    "\n" * (MIB - 1) + "a",
    "!" + "a" * (MIB - 10) + " x",
    "*" + "a" * (MIB - 10),
    "a: " + "1" * (MIB - 10),
    "- &a " + "# c\n" * 100_000 + " x",
    "&a " * 300_000,
    "'" * (MIB - 1),
    '"' + "\\n" * 500_000,
    "sk-" + "a1" * 500_000 + ": [",
]


@pytest.mark.parametrize("third", [0, 1, 2])
def test_any_megabyte_stays_within_steps_and_memory(tmp_path: Path, third: int) -> None:
    """The costs hold for whatever fits into the size limit, be it accepted or refused."""
    assert len(attack(tmp_path, *MEGABYTES[third::3])) in (6, 7)


def test_13_references_outside_the_project_are_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "prompts").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("CONTENT", encoding="utf-8")
    (root / "link").symlink_to(tmp_path / "secret.txt")
    (root / "folder").symlink_to(tmp_path, target_is_directory=True)
    os.mkfifo(root / "pipe")
    outside = [
        "../../.ssh/id_rsa",
        "../secret.txt",
        "/etc/passwd",
        "C:\\x",
        "..\\secret.txt",
        "prompts/../../secret.txt",
    ]
    others = [
        "link",
        "folder/secret.txt",
        "foo\0",
        "\0",
        "~/.ssh/id_rsa",
        "file:///etc/passwd",
        "prompts",
        "pipe",
    ]
    refs = outside + others
    results = run([(root / "spec.yaml", ref, False) for ref in refs])
    allowed = {"spec.file_outside", "spec.file_missing", "spec.file_unreadable"}
    assert codes(results) == allowed
    assert codes(results[: len(outside)]) == {"spec.file_outside"}
    for ref, result in zip(refs, results, strict=True):
        assert "CONTENT" not in result.told
        assert str(tmp_path) not in result.told
        assert ref.replace("\0", "\\x00") in result.told
