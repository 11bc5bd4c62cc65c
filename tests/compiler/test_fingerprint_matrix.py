"""Every key that changes behaviour changes the fingerprint of its section, and of no other."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrun.compiler import build
from agentrun.compiler.compile import compile
from agentrun.compiler.package_diff import diff_packages
from agentrun.compiler.package_file import PackageFile

from ..documents import Document, document_with, split_into_files, write, yaml_text
from ..full_spec import BILLING, FILES, RICH, project
from ..schemas import keys, keys_in, nodes
from .key_changes import CHANGES, NOT_BEHAVIOUR, Change, apply

FILE_KEYS = {key for key in keys("agent") if key.endswith(".file")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rich project, with a second sub-agent that only says something else."""
    folder = tmp_path_factory.mktemp("rich")
    project(folder)
    other = document_with(BILLING, "instructions", "You know all bills of {{ account }}. Be {{ tone }}.")
    write(folder, {"specs/agents/other.yaml": yaml_text(other)})
    return folder


def compile_document(folder: Path, document: Document) -> PackageFile:
    path = folder / "specs/rich.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML, and quicker to write
    return compile(path)


@pytest.fixture(scope="module")
def base(folder: Path) -> PackageFile:
    return compile_document(folder, RICH)


def changed_sections(one: PackageFile, other: PackageFile) -> set[str]:
    assert one.sections.keys() == other.sections.keys()
    return {name for name in one.sections if one.sections[name] != other.sections[name]}


def keys_on_the_path(change: Change) -> Iterator[str]:
    """The keys on the way to a change."""
    for node in nodes("agent", RICH):
        if node.at and f"{change[0]}.".startswith(".".join(map(str, node.at)) + "."):
            yield node.key


def test_every_key_has_a_change_in_the_table() -> None:
    """A new key fails here until it has a change, or is said to be no behaviour."""
    in_table = {key for change in CHANGES for key in keys_on_the_path(change)}
    known = {key for key in keys("agent") if key.partition(".")[0] not in NOT_BEHAVIOUR}
    assert known - FILE_KEYS - in_table == set()


def name_of(change: Change) -> str:
    return f"{change[0]}={json.dumps(change[1], default=lambda _: 'drop')[:30]}"


@pytest.mark.parametrize("change", CHANGES, ids=name_of)
def test_change_of_a_key_changes_its_section(change: Change, folder: Path, base: PackageFile) -> None:
    """And it is described: a fingerprint that differs without a difference in words is a riddle."""
    found = compile_document(folder, apply(change))
    assert changed_sections(base, found) == change[2]
    assert found.fingerprint != base.fingerprint
    described = diff_packages(base, found)
    assert {one.section for one in described} == change[2]
    assert all(one.describe().startswith(f"{one.section}{'.' if one.path else ''}{one.path}:") for one in described)


def test_planted_ignored_field_is_detected(folder: Path, base: PackageFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """A field that is read from the spec and forgotten in the package goes unseen without this matrix."""
    monkeypatch.setattr(build, "milliseconds", lambda _: 70_000)
    change = next(change for change in CHANGES if change[0] == "retry.max_wait")
    with pytest.raises(AssertionError):
        test_change_of_a_key_changes_its_section(change, folder, compile_document(folder, RICH))


# --- files --------------------------------------------------------------------------------------------------

SPLIT_DOCUMENT, MOVED_FILES = split_into_files(RICH)
SECTION_OF = {"prompt": "context", "param": "params", "output": "output", "instructions": "instructions"}


def test_every_key_that_names_a_file_is_used() -> None:
    layouts = [
        SPLIT_DOCUMENT,
        split_into_files(RICH, parts=False)[0],
        document_with(SPLIT_DOCUMENT, "instructions", {"file": "instructions-0.md"}),
    ]
    assert set().union(*(keys_in("agent", layout) for layout in layouts)) >= FILE_KEYS


@pytest.mark.parametrize("name", MOVED_FILES)
def test_a_change_in_a_file_changes_the_section_that_names_it(name: str, folder: Path, base: PackageFile) -> None:
    write(folder / "specs", MOVED_FILES)
    assert compile_document(folder, SPLIT_DOCUMENT).fingerprint == base.fingerprint
    text = MOVED_FILES[name]
    first = name.replace(".", "-").partition("-")[0]
    section = SECTION_OF.get(first, first if first in base.sections else "tools")
    others = {"tools": ("Does something", "Did something"), "policy": ("90s", "95s"), "budgets": ("50k", "55k")}
    if name.endswith(".json"):
        text = json.dumps({**json.loads(text), "title": "Other"})
    elif name.endswith(".md"):
        text += " Please."
    else:
        text = text.replace(*others[first])
    assert text != MOVED_FILES[name]
    write(folder / "specs", {name: text})
    assert changed_sections(base, compile_document(folder, SPLIT_DOCUMENT)) == {section}


def test_change_of_python_source_changes_its_section(folder: Path, base: PackageFile) -> None:
    source = FILES["code/shop/refunds.py"]
    write(folder, {"code/shop/refunds.py": source.replace("return order", "return amount")})
    assert changed_sections(base, compile_document(folder, RICH)) == {"tools"}
    write(folder, {"code/shop/refunds.py": source, "code/shop/hooks.py": "# other\n" + FILES["code/shop/hooks.py"]})
    assert changed_sections(base, compile_document(folder, RICH)) == {"hooks"}
    write(folder, FILES)


@pytest.mark.parametrize(
    ("before", "after", "sections"),
    [
        ("5000000", "5000001", {"model"}),
        ("200000}", "200001}", {"model"}),
        ('"a test"', '"another"', set()),
        ('"routes": {', '"routes": {"openai/other": {"price": null, "context_window": null}, ', set()),
    ],
)
def test_change_of_the_lock_changes_its_section(
    before: str, after: str, sections: set[str], folder: Path, base: PackageFile
) -> None:
    write(folder, {"specs/rich.lock": FILES["specs/rich.lock"].replace(before, after)})
    assert changed_sections(base, compile_document(folder, RICH)) == sections
    write(folder, FILES)


@pytest.mark.parametrize(
    ("at", "value", "sections"),
    [
        ("instructions", "Be {{ tone }} to {{ account }}.", {"agents"}),
        ("params.account", {"type": "string", "maxLength": 9}, {"agents", "tools"}),
        ("params.tone.default", "loud", {"agents"}),
        ("profiles.short.model.max_output_tokens", 101, {"agents"}),
        ("profiles.long.model.max_output_tokens", 901, set()),
        ("description", "Knows bills.", set()),
        ("name", "bills", {"agents"}),
    ],
)
def test_change_of_a_sub_agent_changes_its_section(
    at: str, value: object, sections: set[str], folder: Path, base: PackageFile
) -> None:
    write(folder, {"specs/agents/billing.yaml": yaml_text(document_with(BILLING, at, value))})
    assert changed_sections(base, compile_document(folder, RICH)) == sections
    write(folder, {"specs/agents/billing.yaml": yaml_text(BILLING)})


def test_description_of_a_sub_agent_is_used_for_its_tool(folder: Path) -> None:
    """Without a description of its own the tool says what the sub-agent says of itself."""
    bare = apply(("tools.billing.description", None, set()))
    del bare["tools"]["billing"]["description"]
    before = compile_document(folder, bare)
    write(folder, {"specs/agents/billing.yaml": yaml_text(document_with(BILLING, "description", "Knows bills."))})
    assert changed_sections(before, compile_document(folder, bare)) == {"tools"}
    write(folder, {"specs/agents/billing.yaml": yaml_text(BILLING)})


def test_different_changes_give_different_fingerprints(folder: Path, base: PackageFile) -> None:
    """Hashes of what is there, and not of how much of it there is."""
    some = [change for change in CHANGES if change[0].startswith(("budgets.", "limits.", "guards.", "sinks."))]
    prints = [compile_document(folder, apply(change)).fingerprint for change in some]
    assert len({*prints, base.fingerprint}) == len(prints) + 1
