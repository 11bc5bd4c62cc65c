"""Formatting, layout, file names and defaults of a spec do not change the fingerprint."""

import copy
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentrun.compiler.compile import compile

from ..documents import Document, document_with, split_into_files, write, yaml_text
from ..full_spec import BILLING, FILES, RICH, project
from ..schemas import nodes

TEXT = yaml_text(RICH)


@pytest.fixture(scope="module")
def expected_fingerprint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compile(project(tmp_path_factory.mktemp("base"))).fingerprint


def fingerprint(folder: Path, text: str | bytes | Document, **files: str) -> str:
    spec = project(folder, RICH, **files)
    data = text if isinstance(text, bytes) else (text if isinstance(text, str) else yaml_text(text)).encode()
    spec.write_bytes(data)
    return compile(spec).fingerprint


def with_reversed_mappings(value: Any) -> Any:
    """Every mapping the other way round."""
    if isinstance(value, dict):
        return {key: with_reversed_mappings(inner) for key, inner in reversed(value.items())}
    return [with_reversed_mappings(item) for item in value] if isinstance(value, list) else value


WRITINGS: dict[str, str | bytes] = {
    "comments": re.sub(r"^(\w+):", r"# about \1\n\n\1:", TEXT, flags=re.MULTILINE) + "# the end\n",
    "comments behind": re.sub(r"^(\w+):(?= \S)(.*)$", r"\1:\2   # note", TEXT, flags=re.MULTILINE),
    "order of keys": yaml_text(with_reversed_mappings(RICH)),
    "sorted": yaml_text(RICH, sort_keys=True),
    "flow": yaml_text(RICH, default_flow_style=True),
    "indentation": yaml_text(RICH, indent=8),
    "json": json.dumps(RICH),
    "json with spaces": json.dumps(RICH, indent=4, ensure_ascii=True),
    "double quotes": yaml_text(RICH, quotes=['"']),
    "single quotes": yaml_text(RICH, quotes=["'"]),
    "folded lines": yaml_text(RICH, width=20),
    "anchors": yaml.safe_dump(RICH, sort_keys=False),
    "crlf": TEXT.replace("\n", "\r\n").encode(),
    "cr": TEXT.replace("\n", "\r").encode(),
    "byte order mark": b"\xef\xbb\xbf" + TEXT.encode(),
    "no line end": TEXT.rstrip("\n"),
    "line ends": TEXT + "\n\n\n",
    "document markers": f"%YAML 1.2\n---\n{TEXT}...\n",
}


@pytest.mark.parametrize("name", WRITINGS)
def test_yaml_style_does_not_change_the_fingerprint(name: str, tmp_path: Path, expected_fingerprint: str) -> None:
    text = WRITINGS[name]
    assert text not in (TEXT, TEXT.encode())
    assert fingerprint(tmp_path, text) == expected_fingerprint


def test_anchor_example_uses_anchors() -> None:
    assert "&id001" in str(WRITINGS["anchors"])
    assert "*id001" in str(WRITINGS["anchors"])


SPELLINGS: list[tuple[str, str, str]] = [
    ("turns: 12", "turns: 12.0", "a whole number with a point"),
    ("turns: 12", "turns: 1.2e1", "a whole number with an exponent"),
    ("turns: 12", "turns: 0xC", "a hexadecimal number"),
    ("turns: 12", "turns: +12", "a sign"),
    ("tokens: 50k", "tokens: 50000", "a magnitude written out"),
    ("tokens: 50k", "tokens: 50.000k", "a magnitude with zeros"),
    ("tokens: 50k", "tokens: '50k'", "quotes"),
    ("time: 2m", "time: 120s", "seconds"),
    ("time: 2m", "time: 120000ms", "milliseconds"),
    ("cost: 0.25", "cost: 2.5e-1", "a fraction with an exponent"),
    ("cost: 0.25", "cost: .250", "a fraction without a zero"),
    ("temperature: 0.5", "temperature: 0.50", "a zero at the end"),
    ("count: 1\n", "count: 1.0\n", "a number in a body"),
    ("max_bytes: 64KiB", "max_bytes: 65536", "bytes"),
    ("context_window: 100k", "context_window: 0x186A0", "a window"),
    ("max_output_tokens: 1k", "max_output_tokens: 1000", "tokens"),
]


@pytest.mark.parametrize(("before", "after", "what"), SPELLINGS, ids=[what for _, _, what in SPELLINGS])
def test_spelling_of_values_does_not_change_the_fingerprint(
    before: str, after: str, what: str, tmp_path: Path, expected_fingerprint: str
) -> None:
    plain = re.sub(r'"(\d[\w.]*)"', r"\1", TEXT).replace("agentrun: 1\n", 'agentrun: "1"\n')
    plain = plain.replace("default: 1042", 'default: "1042"').replace("X-Wiki: 1\n", 'X-Wiki: "1"\n')
    plain = plain.replace("      5: 1\n", '      "5": 1\n')
    assert before in plain
    assert fingerprint(tmp_path, plain.replace(before, after, 1)) == expected_fingerprint


RULES = RICH["policy"]["rules"]
FORMS: list[tuple[str, Any]] = [
    ("description", "Says something else."),
    ("profiles", {}),
    ("profiles.ci.model.stream", True),
    ("policy.rules", RULES[::-1]),
    ("policy.rules.0.allow", RULES[0]["allow"][::-1]),
    ("policy.rules.0.allow", RULES[0]["allow"] * 2),
    ("policy.rules.2.modify", ["run"]),
    ("hooks", RICH["hooks"][::-1]),
    ("tools", dict(reversed(RICH["tools"].items()))),
    ("tools", [RICH["tools"]]),
    ("tools", [{name: tool} for name, tool in RICH["tools"].items()]),
    ("tools.lookup.hosts", ["cdn.example", "shop.example", "cdn.example"]),
    ("tools.run.exits", [3, 0]),
    ("tools.docs.tools", ["read", "search_*"]),
    ("tools.billing.spec", "../specs/./agents/billing.yaml"),
    ("policy", [{**RICH["policy"], "rules": RULES[:1]}, *({"rules": [rule]} for rule in RULES[1:])]),
    ("budgets", [{key: value} for key, value in RICH["budgets"].items()]),
    ("replay.volatile", ["body.user", "body.seed"]),
    ("guards.stagnation", 6),
    ("model.fallback.0", {"provider": "own", "name": "claude-haiku-4-5"}),
    ("instructions", [f"{part}\n\n" for part in RICH["instructions"]]),
    ("input", RICH["input"] + "\n"),
    ("context.compaction.prompt", "Sum up.\n"),
    ("output.schema", {"$ref": "#/$defs/answer", "$defs": {"answer": RICH["output"]["schema"]}}),
    ("output.schema.$schema", "https://json-schema.org/draft/2020-12/schema"),
]


@pytest.mark.parametrize("form", FORMS, ids=[f"{at}-{index}" for index, (at, _) in enumerate(FORMS)])
def test_equivalent_forms_have_the_same_fingerprint(
    form: tuple[str, Any], tmp_path: Path, expected_fingerprint: str
) -> None:
    document = document_with(RICH, *form)
    assert yaml_text(document) != TEXT
    assert fingerprint(tmp_path, document) == expected_fingerprint


def test_single_text_list_and_file_have_the_same_fingerprint(tmp_path: Path) -> None:
    texts: list[Any] = ["Be kind.", ["Be kind."], {"file": "one.md"}, [{"file": "one.md"}], "Be kind.\n"]
    files = {"specs/one.md": "Be kind.\r\n"}
    found = {fingerprint(tmp_path, document_with(RICH, "instructions", text), **files) for text in texts}
    assert len(found) == 1


@pytest.mark.parametrize("guard", ["repeated_call", "cycle", "repeated_batch"])
def test_number_and_settings_of_a_guard_have_the_same_fingerprint(guard: str, tmp_path: Path) -> None:
    forms: list[Any] = [4, {"limit": 4}, {"limit": 4, "compare": "results"}]
    found = {fingerprint(tmp_path, document_with(RICH, f"guards.{guard}", form)) for form in forms}
    assert len(found) == 1


def test_explicit_defaults_do_not_change_the_fingerprint(tmp_path: Path) -> None:
    """A key with its default in it says what its absence says."""
    small: Document = {
        "agentrun": "1",
        "name": "small",
        "model": {"provider": "openai", "name": "m"},
        "instructions": "x",
        "tools": {"look": {"kind": "http", "url": "https://a.example"}, "run": {"kind": "shell", "argv": ["x"]}},
        "policy": {"default": "ask"},
        "sinks": {"screen": {"kind": "stdout"}},
        "hooks": [{"id": "h", "at": "on_stop", "call": "shop.hooks:check"}],
        "output": {"schema": {"type": "object"}},
    }
    full = copy.deepcopy(small)
    for _ in range(3):  # a default may bring keys that have defaults
        for node in list(nodes("agent", full)):
            for key, inner in node.says.get("properties", {}).items() if isinstance(node.value, dict) else ():
                if "default" in inner:
                    node.value.setdefault(key, copy.deepcopy(inner["default"]))
    assert len(json.dumps(full)) > 3 * len(json.dumps(small))
    assert fingerprint(tmp_path, full) == fingerprint(tmp_path, small)


# --- files and folders --------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [True, False])
def test_split_into_files_does_not_change_the_fingerprint(
    parts: bool, tmp_path: Path, expected_fingerprint: str
) -> None:
    spec, files = split_into_files(RICH, parts=parts)
    write(tmp_path / "specs", files)
    assert fingerprint(tmp_path, spec) == expected_fingerprint


def test_line_endings_do_not_change_the_fingerprint(tmp_path: Path, expected_fingerprint: str) -> None:
    spec, files = split_into_files(RICH)
    write(tmp_path / "specs", {name: (text + "\n").replace("\n", "\r\n") for name, text in files.items()})
    code = {name: text.replace("\n", "\r\n") for name, text in FILES.items() if name.endswith(".py")}
    children = {"specs/agents/billing.yaml": yaml_text(BILLING).replace("\n", "\r\n")}
    assert fingerprint(tmp_path, spec, **code, **children) == expected_fingerprint


def renamed(folder: Path) -> Path:
    """Every file and folder called something else."""
    os.rename(folder / "specs", folder / "agents of ours")
    inside = folder / "agents of ours"
    os.rename(inside / "agents", inside / "späte")
    os.rename(inside / "späte/billing.yaml", inside / "späte/b.yml")
    os.rename(inside / "rich.lock", inside / "x.lock")
    os.remove(inside / "rich.yaml")
    (inside / "x.yaml").write_text(
        yaml_text(document_with(RICH, "tools.billing.spec", "späte/b.yml")), encoding="utf-8"
    )
    os.rename(folder / "code", folder / "src")
    (folder / "pyproject.toml").write_text('[tool.agentrun]\nimport_roots = ["src", "agents of ours"]\n')
    return inside / "x.yaml"


def deeper(folder: Path) -> Path:
    (folder / "a/b").mkdir(parents=True)
    shutil.move(folder / "specs", folder / "a/b/specs")
    return folder / "a/b/specs/rich.yaml"


def aged(folder: Path) -> Path:
    for path in folder.rglob("*"):
        os.utime(path, (1, 1))
    return folder / "specs/rich.yaml"


def closed(folder: Path) -> Path:
    for path in folder.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o400)
    return folder / "specs/rich.yaml"


def crowded(folder: Path) -> Path:
    """More files beside it that nothing names."""
    write(folder, {"specs/z.yaml": "x", "specs/a.md": "y", "code/shop/other.py": "import os\n", ".git/config": ""})
    return folder / "specs/rich.yaml"


@pytest.mark.parametrize("change", [renamed, deeper, aged, closed, crowded], ids=lambda change: change.__name__)
def test_file_names_and_attributes_do_not_change_the_fingerprint(
    change: Callable[[Path], Path], tmp_path: Path, expected_fingerprint: str
) -> None:
    folder = tmp_path / "some where/else"
    project(folder)
    assert compile(change(folder)).fingerprint == expected_fingerprint


def test_planted_letter_changes_the_fingerprint(tmp_path: Path, expected_fingerprint: str) -> None:
    """These tests would see a difference: one letter is enough."""
    assert fingerprint(tmp_path, TEXT.replace("Be kind", "Be Kind")) != expected_fingerprint
