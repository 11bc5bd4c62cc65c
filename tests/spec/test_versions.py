"""The version key of a document, and upgrades from old versions."""

from pathlib import Path

import pytest

from agentrun.spec import document_loader
from agentrun.spec.document_loader import LATEST_VERSION, UPGRADES, Upgrade, load_document, upgrade_document
from agentrun.spec.problems import Problem, Source
from agentrun.spec.tree import MappingEntry, MappingNode, place_at_path, plain_data
from agentrun.spec.yaml_parser import parse_yaml_document


def tree(text: str) -> MappingNode:
    root = parse_yaml_document(Source(Path("/p/a.yaml"), "a.yaml", text))
    assert isinstance(root, MappingNode)
    return root


def renamed(old: str, new: str, version: str) -> Upgrade:
    """An upgrade as they will be: one key has another name, and the document says the next version."""

    def upgrade(root: MappingNode) -> MappingNode:
        entries = {new if key == old else key: entry for key, entry in root.entries.items()}
        said = root.entries["agentrun"]
        written = parse_yaml_document(Source(said.node.place.source.path, "a.yaml", f'"{version}"'))
        return MappingNode({**entries, "agentrun": MappingEntry(said.key_place, written)}, root.place)

    return upgrade


CHAIN = {"-1": ("0", renamed("system", "prompt", "0")), "0": ("1", renamed("prompt", "instructions", "1"))}
"""Two versions that never were, and the way from each to the next."""


@pytest.fixture(autouse=True)
def _old_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_loader, "UPGRADES", CHAIN)


def test_latest_version_is_not_changed() -> None:
    root = tree('agentrun: "1"\nname: a\n')
    assert upgrade_document(root) is root


def test_document_is_upgraded_by_one_version() -> None:
    root = upgrade_document(tree('agentrun: "0"\nprompt: Be kind.\n'))
    assert isinstance(root, MappingNode)
    assert plain_data(root) == {"agentrun": "1", "instructions": "Be kind."}


def test_document_is_upgraded_through_all_versions_and_keeps_places() -> None:
    """What is found in an upgraded document points at what was written."""
    root = upgrade_document(tree('agentrun: "-1"\n\nsystem: Be kind.\n'))
    assert isinstance(root, MappingNode)
    assert plain_data(root) == {"agentrun": "1", "instructions": "Be kind."}
    place = place_at_path(root, ["instructions"])
    assert (place.line, place.column) == (3, 9)


def problem(text: str) -> Problem:
    found = upgrade_document(tree(text))
    assert isinstance(found, Problem)
    assert found.code == "spec.version"
    assert (found.line, found.column) == (1, 11)
    return found


@pytest.mark.parametrize("version", ["2", "7", "1.0", "1.1", "v1", "", " 1", "one", "-2"])
def test_unknown_version_is_refused(version: str) -> None:
    found = problem(f'agentrun: "{version}"\n')
    assert version in found.message
    assert found.hint is not None
    assert '"-1", "0", "1"' in found.hint


@pytest.mark.parametrize("version", ["1", "0", "-1"])
def test_unquoted_version_is_refused_with_a_hint(version: str) -> None:
    found = problem(f"agentrun: {version}\n")
    assert found.message == "the version must be text"
    assert found.hint == f'put it in quotes: agentrun: "{version}"'


@pytest.mark.parametrize("value", ["2", "1.0", "1.5", "true", "null", "[1]", "{a: 1}", '["1"]'])
def test_value_that_is_no_version_is_refused(value: str) -> None:
    assert "unknown version" in problem(f"agentrun: {value}\n").message


def test_document_of_an_unknown_version_is_not_checked_further() -> None:
    """Its other keys may be right in that version."""
    document = load_document(Source(Path("/p/a.yaml"), "a.yaml", 'agentrun: "2"\nnew_key: 1\n'), "agent")
    assert document.root is None
    assert [one.code for one in document.problems] == ["spec.version"]


@pytest.mark.parametrize("kind", ["agent", "tools", "policy", "budgets", "cases"])
def test_document_without_a_version_is_refused(kind: str) -> None:
    document = load_document(Source(Path("/p/a.yaml"), "a.yaml", "name: a\n"), kind)
    assert 'needs the key "agentrun"' in " ".join(one.message for one in document.problems)


def test_version_1_is_the_latest_and_has_no_upgrades() -> None:
    """When this fails a version "2" has come: `v1` must be frozen then, and every old version reach the latest."""
    assert LATEST_VERSION == "1"
    assert UPGRADES == {}
    for version in UPGRADES:
        assert isinstance(upgrade_document(tree(f'agentrun: "{version}"\n')), MappingNode)
