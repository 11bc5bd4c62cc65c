"""There is one copy of `agentrun`, and its public names are listed here.

From the root of a checkout `import runner.agentrun` would work too, and give a second copy of every class,
unequal to the first. So nothing imports it, and nothing makes `runner` a package.
"""

import importlib
import importlib.util
from pathlib import Path

from .layers import under
from .sources import PACKAGE, ROOT, Module, Tree, assert_no_findings, imports, plant, product, read_tree

# The public surface. A name added to `agentrun.__all__` is added here, in the same change, on purpose.
PUBLIC = [
    *("open", "ProjectRuntime", "RunSummary", "WaitingQuestion"),
    *("stream", "astream", "StreamEvent", "TextDelta", "TextWithdrawn", "CallRequested", "CallProgressed"),
    *("CallFinished", "RulingMade", "QuestionAsked", "SpendUpdated", "RunEnded"),
    *("compile", "load", "run", "arun", "replay", "resume", "aresume", "audit"),
    *(
        "Runtime",
        "Request",
        "Attachment",
        "RunHandle",
        "Snapshot",
        "Outcome",
        "ObservedCall",
        "Question",
        "PackageFile",
    ),
    *("Message", "User", "Assistant", "ToolResult", "Text", "Image", "File", "ToolCall", "message_from_dict"),
    *("ModelRequest", "Reply", "Usage", "Fault", "Deliver", "Record", "MemoryJournals", "canonical"),
    *("Event", "Cursor", "Gap", "ReplyDelta", "ToolProgress", "Scope"),
    *("ALL_EVENTS", "run_scope", "family_scope", "agent_scope", "filter_scope"),
    *("AgentrunError", "SpecError", "PackageError", "HostError", "RequestError", "ProviderError", "ToolError"),
    *("LimitError", "PolicyError", "OutputError", "CassetteError", "StorageError"),
    *("progress", "HookQuestion", "Continue", "Deny", "Modify", "Inject"),
]


def second_copies(trees: list[Tree]) -> list[str]:
    return [
        module.at(item.line, f"imports {item.target}")
        for tree in trees
        for module in tree.values()
        if "runner" in module.text  # to parse all tests takes seconds
        for item in imports(module, tree)
        if under(item.target, "runner")
    ]


def extra_entries(runner: Path) -> list[str]:
    """What lies in `runner/` beside the package; caches do not count."""
    names = {path.name for path in runner.iterdir() if not path.name.startswith(".")}
    return sorted(names - {"agentrun", "__pycache__"})


def missing_names(module: object, names: list[str]) -> list[str]:
    return [name for name in names if not hasattr(module, name)]


def test_nothing_imports_a_second_copy_of_agentrun() -> None:
    assert_no_findings(second_copies([product(), read_tree(ROOT / "tests"), read_tree(ROOT / "bench")]))


def test_import_of_a_second_copy_is_found(tmp_path: Path) -> None:
    text = "import runner.agentrun.core\nfrom runner import agentrun\nimport runners\n"
    assert len(second_copies([plant(tmp_path, {"x.py": text})])) == 2


def test_runner_folder_contains_only_the_package() -> None:
    assert extra_entries(PACKAGE.parent) == []


def test_extra_entry_in_the_runner_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "agentrun").mkdir()
    (tmp_path / "__init__.py").touch()
    assert extra_entries(tmp_path) == ["__init__.py"]


def test_import_resolves_to_one_place() -> None:
    spec = importlib.util.find_spec("agentrun")
    assert spec is not None
    assert [Path(place) for place in spec.submodule_search_locations or []] == [PACKAGE]


def test_all_lists_exactly_the_public_names() -> None:
    agentrun = importlib.import_module("agentrun")
    assert sorted(getattr(agentrun, "__all__", [])) == sorted(PUBLIC)
    assert missing_names(agentrun, PUBLIC) == []


def test_missing_names_are_found() -> None:
    assert missing_names(Module, ["at", "nowhere"]) == ["nowhere"]
