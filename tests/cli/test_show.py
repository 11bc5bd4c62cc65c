"""`agentrun show`, `verify` and `audit` of journal files: the story, the hash chain, the decisions, exit codes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from agentrun.canonical_json import data_hash, sorted_json
from agentrun.core.facts import Record, Ruled, RunStopped
from agentrun.journal.storage import MemoryJournal, read_journal_file

from .command import ROOT, agentrun

SUPPORT = ROOT / "specs" / "support.yaml"
RESEARCHER = ROOT / "specs" / "researcher.yaml"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journals of two replayed cases: support, and researcher with two sub-agents."""
    folder = tmp_path_factory.mktemp("journals")
    for spec, *rest in ((SUPPORT, "--case", "approval"), (RESEARCHER,)):
        done = agentrun(spec, *rest, "--journal", folder / f"{spec.stem}.jsonl", "-q", CI="true")
        assert done.code == 0, done.err
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return tmp_path


def rewrite(path: Path, change: Callable[[Record], Record]) -> None:
    """Change records and chain them again, as somebody would who wants to hide the change."""
    journal = MemoryJournal()
    for record in tuple(read_journal_file(path)):
        journal.append(replace(change(record), prev=journal.head))
    path.write_bytes(journal.text())


def cut(path: Path, keep: int) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:keep]))


# --- show ------------------------------------------------------------------------------------------------------


def test_show_describes_turns_calls_rulings_spend_and_outcome(folder: Path) -> None:
    done = agentrun("show", folder / "support.jsonl")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith("support · replay-")
    assert lines[0].endswith(" · completed")
    assert "19 records, replayed, package sha256:" in lines[1]
    for line in (
        "support: My order 2077 arrived broken. I want all my money back.",
        "turn 2 · openai/gpt-4.1-mini",
        '  → lookup_order {"id":"2077"}',
        "  415 tokens in, 20 out, $0.000198",
        "  lookup_order: allowed (by reads)",
        "  ? refund: needs approval (by big-refunds: a person signs off refunds above 50)",
        "  refund: approved by case approval",
        '  ← refund: {"order_id":"2077","refunded":120}',
        "answer",
    ):
        assert line in lines, line
    assert lines[-2].startswith("  Your tea set arrived damaged")
    assert lines[-1] == "completed in 3 turns, 1548 tokens in, 107 out, 2 tool calls, $0.000791 (replayed)"


def test_show_nests_sub_agents_where_they_start(folder: Path) -> None:
    lines = agentrun("show", folder / "researcher.jsonl", "--package", RESEARCHER).out.splitlines()
    starts = [number for number, line in enumerate(lines) if "the sub-agent reader starts" in line]
    assert len(starts) == 2
    for start in starts:
        assert lines[start + 1].startswith("    reader: How high ")
        end = lines.index("    completed", start)
        assert all(line.startswith("    ") for line in lines[start + 1 : end])
        assert lines[end + 1].startswith("  ← reader c2.")
    (folder / "researcher.c2.1.jsonl").unlink()
    assert (
        "    reader c2.1: the sub-agent has no journal that can be read"
        in agentrun("show", folder / "researcher.jsonl").out.splitlines()
    )


def test_show_ends_an_unfinished_run_with_what_is_open(folder: Path) -> None:
    ends = {
        2: ["the request has no result", "so far 1 turn, 0 tokens"],
        5: ["lookup_order (c1.0) has no result", "so far 1 turn, 435 tokens, 1 tool call, $0.000198"],
        8: ["the request has no result", "so far 2 turns, 435 tokens, 1 tool call, $0.000198"],
        11: ["waits for an approval of refund (c2.0)", "so far 2 turns, 1k tokens, 1 tool call, $0.000488"],
    }
    for keep, end in ends.items():
        shutil.copy(folder / "support.jsonl", folder / "cut.jsonl")
        cut(folder / "cut.jsonl", keep)
        done = agentrun("show", folder / "cut.jsonl")
        lines = done.out.splitlines()
        assert (done.code, lines[0].split(" · ")[-1]) == (0, "not finished")
        assert lines[-2:] == end, keep


def test_show_json_has_one_object_per_record_with_run_and_call(folder: Path) -> None:
    lines = agentrun("show", folder / "researcher.jsonl", "--json").lines()
    runs = {line["run"] for line in lines}
    root = min(runs, key=len)
    assert runs == {root, f"{root}.c2.0", f"{root}.c2.1"}
    *records, last = lines
    assert last["outcome"]["answer"].startswith('{"answer"')
    assert last["run"] == root
    for line in records:
        fact = line["fact"]
        assert line.get("call") == fact.get("call", fact.get("subject")), line
        assert set(line) - {"call"} == {"run", "seq", "at", "epoch", "fact"}
    assert {line["call"] for line in records if "call" in line and line["run"] == root} == {"c1.0", "c2.0", "c2.1"}


def test_show_of_a_damaged_journal_shows_the_records_before_the_damage(folder: Path) -> None:
    path = folder / "support.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[11] = lines[11].replace(b"approved", b"denied")
    path.write_bytes(b"".join(lines))
    done = agentrun("show", path)
    assert done.code == 7
    assert done.err.startswith("journal.damaged: record 13 of the journal is damaged")
    assert done.out.splitlines()[0].endswith("not finished")
    first, *_, last = agentrun("show", path, "--json").lines()
    assert last["run"] == first["run"]
    assert last["error"]["code"] == "journal.damaged"


def test_show_prints_no_control_characters_and_no_secret_of_the_environment(folder: Path) -> None:
    secret = "correct-horse-battery-staple"

    def change(record: Record) -> Record:
        fact = record.fact
        if isinstance(fact, Ruled):
            return replace(record, fact=replace(fact, reason=f"\x1b]52;c;aGk=\x07 {secret}"))
        return record

    rewrite(folder / "support.jsonl", change)
    for form in ((), ("--json",)):
        done = agentrun("show", folder / "support.jsonl", *form, SHOP_PASSWORD=secret)
        assert done.code == 0
        assert "\x1b" not in done.out
        assert "\x07" not in done.out
        assert "]52;c;aGk=" in done.out
        assert secret not in done.out


def test_fact_of_a_later_release_is_shown_and_verified_but_not_audited(folder: Path) -> None:
    """Of a kind that this release does not know."""
    path = folder / "support.jsonl"
    lines = path.read_bytes().splitlines()
    head = data_hash(lines[-2])
    new = {"at": 1, "epoch": 1, "fact": {"type": "mood_changed", "mood": "good"}, "prev": head, "seq": len(lines)}
    unknown = sorted_json(new)
    last = json.loads(lines[-1]) | {"prev": data_hash(unknown), "seq": len(lines) + 1}
    path.write_bytes(b"".join(line + b"\n" for line in (*lines[:-1], unknown, sorted_json(last))))
    done = agentrun("show", path)
    assert (done.code, done.out.splitlines()[0].split(" · ")[-1]) == (0, "completed")
    assert "  mood_changed, which this release of agentrun does not know" in done.out.splitlines()
    assert {"type": "mood_changed", "mood": "good"} in [
        line.get("fact") for line in agentrun("show", path, "--json").lines()
    ]
    assert agentrun("verify", path).code == 0
    audited = agentrun("audit", path, "--package", SUPPORT)
    assert (audited.code, audited.err.partition(":")[0]) == (7, "recovery.failed")


# --- verify ----------------------------------------------------------------------------------------------------


def test_verify_counts_the_records_of_all_journals(folder: Path) -> None:
    done = agentrun("verify", "researcher.jsonl", cwd=folder)
    assert (done.code, done.err) == (0, "")
    assert [line.partition(" ")[0] for line in done.out.splitlines()] == [
        "researcher.jsonl",
        "researcher.c2.0.jsonl",
        "researcher.c2.1.jsonl",
    ]
    assert all(" is intact: " in line and line.endswith(", the run is finished") for line in done.out.splitlines())
    lines = agentrun("verify", "researcher.jsonl", "--json", cwd=folder).lines()
    assert [(line["records"], line["finished"]) for line in lines] == [(20, True), (11, True), (11, True)]
    assert all(line["run"].startswith("replay-") for line in lines)


def test_verify_says_that_records_may_be_missing_at_the_end(folder: Path) -> None:
    cut(folder / "support.jsonl", 7)
    done = agentrun("verify", "support.jsonl", cwd=folder)
    assert done.code == 0
    assert "7 records; " in done.out
    assert done.out.endswith("the run is not finished, and without a head file later records may be missing\n")


def swap(lines: list[bytes]) -> Iterable[bytes]:
    return [*lines[:3], lines[4], lines[3], *lines[5:]]


@pytest.mark.parametrize(
    ("damage", "code", "seq"),
    [
        (lambda lines: [*lines[:4], *lines[5:]], "journal.damaged", 5),
        (lambda lines: [*lines[:5], lines[4], *lines[5:]], "journal.damaged", 6),
        (swap, "journal.damaged", 4),
        (lambda lines: [*lines[:-1], lines[-1][:40]], "journal.truncated", 19),
        (lambda lines: [lines[0].replace(b"support", b"supp0rt"), *lines[1:]], "journal.damaged", 2),
        (lambda lines: [b"{}\n", *lines[1:]], "journal.damaged", 1),
    ],
    ids=["removed", "doubled", "swapped", "torn", "changed", "no journal"],
)
def test_verify_finds_damage_with_the_record_number(
    folder: Path, damage: Callable[[list[bytes]], Iterable[bytes]], code: str, seq: int
) -> None:
    path = folder / "support.jsonl"
    path.write_bytes(b"".join(damage(path.read_bytes().splitlines(keepends=True))))
    done = agentrun("verify", path)
    assert (done.code, done.out) == (7, "")
    assert f"{code}: record {seq} of the journal" in done.err
    (line,) = agentrun("verify", path, "--json").lines()
    assert (line["error"]["code"], line["error"]["fields"]["seq"], line["error"]["exit"]) == (code, seq, 7)
    assert "run" in line


def test_empty_file_is_no_journal(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    for name in ("show", "verify", "audit"):
        done = agentrun(name, tmp_path / "empty.jsonl")
        assert (done.code, done.out) == (7, "")
        assert "journal.truncated: the journal has no records" in done.err


def test_verify_names_the_damaged_journal_of_a_sub_agent(folder: Path) -> None:
    path = folder / "researcher.c2.0.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    done = agentrun("verify", "researcher.jsonl", cwd=folder)
    assert done.code == 7
    assert done.err.startswith("researcher.c2.0.jsonl:\njournal.truncated: ")
    assert len(done.out.splitlines()) == 2


# --- audit -----------------------------------------------------------------------------------------------------


def test_audit_of_a_run_and_its_sub_agents_finds_the_same_decisions(folder: Path) -> None:
    done = agentrun("audit", folder / "researcher.jsonl", "--package", RESEARCHER)
    assert (done.code, done.err) == (0, "")
    counts = [line.partition(" would be the same today: ")[2] for line in done.out.splitlines()]
    assert counts == ["13 decisions", "7 decisions", "7 decisions"]


def test_audit_uses_the_package_next_to_the_journal(folder: Path) -> None:
    agentrun("compile", SUPPORT, "-o", folder / "package.json")
    (line,) = agentrun("audit", folder / "support.jsonl", "--json").lines()
    assert (line["records"], line["decisions"]) == (19, 12)
    assert line["run"].startswith("replay-")


@pytest.mark.parametrize("content", [None, '{"name": "left-pad", "version": "1.3.0"}', "{"])
def test_audit_without_the_package_says_how_to_pass_it(folder: Path, content: str | None) -> None:
    """A package.json of npm is not one of ours."""
    if content is not None:
        (folder / "package.json").write_text(content)
    done = agentrun("audit", folder / "support.jsonl")
    assert done.code == 2
    assert done.err.startswith("package.invalid: the package sha256:")
    assert "pass it, or the spec that it was compiled from: --package FILE" in done.err
    (line,) = agentrun("audit", folder / "support.jsonl", "--package", RESEARCHER, "--json").lines()
    assert (line["error"]["code"], line["error"]["exit"]) == ("package.invalid", 2)
    assert line["run"].startswith("replay-")


def change_ruling(record: Record) -> Record:
    fact = record.fact
    if isinstance(fact, Ruled) and fact.ruling == "allow":
        return replace(record, fact=replace(fact, reason="because I say so"))
    return record


def change_end(record: Record) -> Record:
    fact = record.fact
    return replace(record, fact=replace(fact, label="truncated")) if isinstance(fact, RunStopped) else record


@pytest.mark.parametrize(
    ("change", "seq", "call", "kind"),
    [(change_ruling, 4, "c1.0", "ruled"), (change_end, 19, None, "run_stopped")],
    ids=["ruling", "end"],
)
def test_audit_reports_the_first_decision_that_differs(
    folder: Path, change: Callable[[Record], Record], seq: int, call: str | None, kind: str
) -> None:
    rewrite(folder / "support.jsonl", change)
    done = agentrun("audit", folder / "support.jsonl", "--package", SUPPORT)
    assert (done.code, done.out) == (1, "")
    assert done.err == f"audit.diverged: record {seq}, {kind}, has other values than this release would write\n"
    (line,) = agentrun("audit", folder / "support.jsonl", "--package", SUPPORT, "--json").lines()
    assert line.get("call") == call
    error: dict[str, Any] = line["error"]
    assert (error["code"], error["fields"]["seq"], error["exit"]) == ("audit.diverged", seq, 1)
    assert error["fields"]["was"] != error["fields"]["is"]


def test_audit_of_a_damaged_journal_fails_with_the_damage(folder: Path) -> None:
    path = folder / "support.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    done = agentrun("audit", path, "--package", SUPPORT)
    assert (done.code, done.out) == (7, "")
    assert done.err.startswith("journal.truncated: ")


def test_journal_of_the_shipped_case_is_chained(folder: Path) -> None:
    """What the tests above damage is a chain of hashes."""
    first, second, *_ = (folder / "support.jsonl").read_bytes().splitlines()
    assert json.loads(second)["prev"] == data_hash(first)
