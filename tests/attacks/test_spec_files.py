"""THREATS group A, rows 1, 2, 4 to 8 and 13: hostile spec files, each within a second and 64 MiB.

Every attack runs in a process of its own, so that what one leaves behind cannot hide what the next one takes.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MIB = 1024 * 1024

# Reads the file given, as text with surrogates if need be, and prints what was found and what it cost.
ATTACK = """
import json, resource, sys, time
from pathlib import Path
from agentrun.spec.document import DocumentError, parse
from agentrun.spec.files import FileRefused, read_inside, read_source
from agentrun.spec.problems import Source, story
from agentrun.spec.tree import plain

def used():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

file, ref, raw = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
codes, value, told = [], None, ""
try:
    parse(Source(file, "warm.yaml", "a: 1"))
    baseline, start = used(), time.process_time()
    if ref:
        source = read_inside(file.parent, file.parent, ref.replace("NUL", chr(0)))
    elif raw:
        source = Source(file, file.name, file.read_bytes().decode("utf-8", "surrogatepass"))
    else:
        source = read_source(file)
    value = plain(parse(source))
except DocumentError as error:
    codes = [problem.code for problem in error.problems]
    told = "\\n".join(map(story, error.problems)) + json.dumps([p.as_json() for p in error.problems])
except FileRefused as error:
    codes, told = [error.code], f"{error.message} {error.hint}"
cpu, memory = time.process_time() - start, used() - baseline
small = value if len(str(value)) < 1000 else "large"
print(json.dumps({"codes": codes, "value": small, "told": told, "cpu": cpu, "memory": memory}))
"""


def attack(
    path: Path, data: bytes = b"", *, ref: str = "", raw: bool = False
) -> tuple[list[str], str, object]:
    """The codes of the problems, what was told of them, and what was read, if anything was."""
    if data:
        path.write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-c", ATTACK, str(path), ref, "raw" if raw else ""],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["cpu"] < 1
    assert result["memory"] < 64 * MIB
    told = result["told"].replace("\n", "")
    assert told.isprintable()
    return result["codes"], told, result["value"]


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    return tmp_path / "spec.yaml"


def bomb(levels: int, uses: int, form: str = "[{}]") -> bytes:
    lines = ["a0: &a0 [" + "x," * uses + "]" if form == "[{}]" else "a0: &a0 {k: v}"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} " + form.format(",".join([f"*a{level - 1}"] * uses)))
    return "\n".join(lines).encode()


def test_1_alias_bomb(spec: Path) -> None:
    assert attack(spec, bomb(9, 9))[0] == ["spec.alias_limit"]
    assert attack(spec, bomb(40, 2))[0] == ["spec.alias_limit"]


def test_2_merge_key_bomb(spec: Path) -> None:
    codes, _, _ = attack(spec, bomb(9, 9, "{{<<: [{}]}}"))
    assert set(codes) <= {"spec.merge_key", "spec.alias_limit"}
    assert "spec.merge_key" in codes


@pytest.mark.parametrize("piece", ["[", "{", '{"a":', "- ", "? ", "[[", "[{a: ", "a:\n "])
def test_4_deep_nesting(spec: Path, piece: str) -> None:
    for count in (5000, (MIB - 1) // len(piece)):
        codes, _, value = attack(spec, (piece * count).encode())
        assert codes
        assert value is None


def test_5_duplicate_keys(spec: Path) -> None:
    codes, told, _ = attack(spec, b"policy: {default: deny}\ntools: {}\npolicy: {default: allow}\n")
    assert codes == ["spec.duplicate_key"]
    assert "spec.yaml:3:1" in told
    assert "already set at line 1, column 1" in told


@pytest.mark.parametrize(
    "tag",
    [
        "!!python/object/apply:os.system",
        "!!python/name:os.system",
        "!!binary",
        "!!timestamp",
        "!",
        "!x",
        "!<x>",
    ],
)
def test_6_tags(spec: Path, tag: str) -> None:
    assert attack(spec, f"a: {tag} ['touch pwned']".encode())[0] == ["spec.tag"]
    assert not (spec.parent / "pwned").exists()


@pytest.mark.parametrize(
    "word", ["no", "on", "yes", "1_000", "1:30", "2025-01-01", "0b11", "1_0.5", "=", "<<"]
)
def test_7_implicit_types_stay_text(spec: Path, word: str) -> None:
    assert attack(spec, f"a: {word}".encode()) == ([], "", {"a": word})


@pytest.mark.parametrize(
    "word", ["012", "-012", ".inf", "-.inf", ".nan", "1e999", "1e-999", "9007199254740992", "1" * 5000]
)
def test_7_numbers_refused(spec: Path, word: str) -> None:
    assert attack(spec, f"a: {word}".encode())[0] == ["spec.number"]


def test_8_size(spec: Path) -> None:
    with spec.open("wb") as file:
        file.write(b"a: '")
        for _ in range(50):
            file.write(b"x" * MIB)
    assert attack(spec)[0] == ["spec.too_large"]
    assert attack(spec, raw=True, data=b"x" * (MIB + 1))[0] == ["spec.too_large"]


@pytest.mark.parametrize(
    "data",
    [
        b"a: x\0y",
        "a: 1".encode("utf-16"),
        "a: 1".encode("utf-16-be"),
        b"a: \xff",
        b"a: \xed\xa0\x80",
        b"\0" * MIB,
    ]
    + [b"\xfe\xff", b"\xff\xfe\0\0a\0\0\0", b"a: \xc0\x80"],
)
def test_8_encodings(spec: Path, data: bytes) -> None:
    assert attack(spec, data)[0] == ["spec.encoding"]


@pytest.mark.parametrize(
    "data", [b"a: x\0y", b"a: \xed\xa0\x80", b"\0" * MIB, b"a: \xe2\x80\xa8", b"a: \x1b[2J"]
)
def test_8_the_parser_itself_refuses(spec: Path, data: bytes) -> None:
    assert set(attack(spec, data, raw=True)[0]) == {"spec.encoding"}


def test_8_direction_overrides_are_shown(spec: Path) -> None:
    codes, told, _ = attack(spec, "na\u202eme: 1\nna\u202eme: 2\u200b".encode())
    assert codes == ["spec.duplicate_key"]
    assert "na\\u202eme" in told


@pytest.mark.parametrize(
    "data",
    [
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
    ],
    ids=lambda text: text[:8].encode("unicode_escape").decode(),
)
def test_a_megabyte_of_anything(spec: Path, data: str) -> None:
    """The costs hold for whatever fits into the size limit, be it accepted or refused."""
    attack(spec, data.encode())


@pytest.mark.parametrize(
    "ref",
    [
        "../../.ssh/id_rsa",
        "../secret.txt",
        "/etc/passwd",
        "C:\\x",
        "..\\secret.txt",
        "link",
        "folder/secret.txt",
    ]
    + ["fooNUL", "NUL", "prompts/../../secret.txt", "~/.ssh/id_rsa", "file:///etc/passwd", "prompts", "pipe"],
)
def test_13_references(tmp_path: Path, ref: str) -> None:
    root = tmp_path / "root"
    (root / "prompts").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("CONTENT", encoding="utf-8")
    (root / "link").symlink_to(tmp_path / "secret.txt")
    (root / "folder").symlink_to(tmp_path, target_is_directory=True)
    os.mkfifo(root / "pipe")
    codes, told, value = attack(root / "spec.yaml", ref=ref)
    assert codes[0] in ("spec.file_outside", "spec.file_missing", "spec.file_unreadable")
    assert value is None
    assert "CONTENT" not in told
    assert str(tmp_path) not in told
    assert ref.replace("NUL", "\\x00").rpartition("/")[2] in told
