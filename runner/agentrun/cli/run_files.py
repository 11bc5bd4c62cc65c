"""RUN and FILE arguments: the runs of the store, and the journals and packages of commands that show or check one.

Rule 1  A file is named by its path. Any other word is a run of the store: its id, a unique beginning of it, or `-`.
Rule 2  `-` is the latest run that is not finished, and that no process is working on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentrun.cli.completion import complete_runs, complete_runs_and_files
from agentrun.cli.console import document_problems, json_line, print_stderr, safe_text, show_error
from agentrun.cli.options import ExistingFile
from agentrun.errors import RequestError
from agentrun.secret import mask

if TYPE_CHECKING:
    from agentrun.core.package import Package
    from agentrun.errors import AgentrunError
    from agentrun.journal.family import RunFamily
    from agentrun.spec.project import Project
    from agentrun.store.files import FileStore
    from agentrun.store.run_summary import RunSummary

MAX_NAMED_RUNS = 5
LAST_RUN = "-"
run_argument = click.argument("run", shell_complete=complete_runs)
journal_argument = click.argument("run", metavar="RUN|FILE", shell_complete=complete_runs_and_files)
package_option = click.option(
    "--package",
    "packages",
    type=ExistingFile,
    multiple=True,
    help="The package of the run, or the spec that it was compiled from; can be repeated. The default is the package "
    "in the store, or package.json next to the journal.",
)


def working_project() -> Project:
    """The project of the working directory. Raises SpecError if its settings are invalid, and click.UsageError if it
    has no store."""
    from agentrun.spec.project import find_working_project

    with document_problems():
        project = find_working_project(Path.cwd())
    if not project.stores_runs:
        raise click.UsageError("there are no stored runs and sessions, because AGENTRUN_STORE is none")
    return project


def find_run(store: FileStore, word: str) -> str:
    """The run that a word names. Raises `run.not_found`, and click.UsageError if several runs begin like that."""
    from agentrun.spec.problems import quote_text
    from agentrun.store.run_ids import root_run

    if word == LAST_RUN:
        return _last_unfinished(store)
    runs = store.runs()
    if word in runs:
        return word
    starts = (word, f"run-{word}") if word else ()
    found = [run for run in runs if run.startswith(starts) and root_run(run) == run]
    if len(found) > 1:
        named = ", ".join(sorted(found)[:MAX_NAMED_RUNS]) + (", …" if len(found) > MAX_NAMED_RUNS else "")
        raise click.UsageError(f"{len(found)} runs begin with {quote_text(word)}: {named}")
    if not found:
        message, hint = f"there is no run {quote_text(word)} in {store.project.store}", "agentrun runs lists the runs"
        raise RequestError("run.not_found", message, hint=hint, fields={"run": word})
    return found[0]


def _last_unfinished(store: FileStore) -> str:
    """From the files and not from the index: what is resumed has effects."""
    from agentrun.store.run_summary import RESUMABLE_STATUSES

    for run in store.unfinished_runs():
        if read_summary(store, run).status in RESUMABLE_STATUSES:
            return run
    raise RequestError("run.not_found", "no run is waiting to be resumed", fields={"run": LAST_RUN})


def read_summary(store: FileStore, run: str) -> RunSummary:
    """The summary of a run from its files, without the index. A run without a record is damaged."""
    from msgspec.structs import replace

    from agentrun.errors import AgentrunError
    from agentrun.store.run_summary import RESUMABLE_STATUSES, RunSummary, summarize

    damaged = RunSummary(run, "", "damaged", 0, 0)
    try:
        contents = store.contents(run)
        summary = summarize(run, contents.data, contents.records, contents.read_blob) or damaged
    except AgentrunError as error:
        return replace(damaged, code=error.code)
    is_open = summary.status in RESUMABLE_STATUSES
    return replace(summary, status="running") if is_open and store.is_locked(run) else summary


def refuse_sub_agent(run: str, reason: str) -> None:
    """Raise click.UsageError for the run of a sub-agent."""
    from agentrun.store.run_ids import root_run

    if root_run(run) != run:
        raise click.UsageError(f"{run} is the run of a sub-agent: {reason}, {root_run(run)}")


def read_run(word: str, *, unknown: bool = True, keep_all: bool = True) -> tuple[RunFamily, list[Path]]:
    """The journals that RUN|FILE names, and the files that may be its packages. The options are those of
    `read_family`."""
    from agentrun.journal.family import read_family
    from agentrun.store.files import FileStore
    from agentrun.store.run_ids import root_run

    if Path(word).is_file() or "/" in word or word.endswith(".jsonl"):
        path: Path = ExistingFile.convert(word, None, None)
        return read_family(path, unknown=unknown, keep_all=keep_all), package_paths(path.parent)
    store = FileStore(working_project())
    run = find_run(store, word)
    path = store.journal_path(run)
    family = read_family(path, store.project.store_tree, unknown=unknown, keep_all=keep_all)
    return family, package_paths(store.run_directory(root_run(run)))


def package_paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("package*.json"))


def load_packages(beside: Iterable[Path], files: Iterable[Path]) -> dict[str, Package]:
    """The packages of a run by fingerprint, with those of its sub-agents. `beside`: files that are ignored if they are
    no packages. Raises `package.*`, and a SpecError."""
    from agentrun.canonical_json import fingerprint
    from agentrun.engine.api import load_package_source
    from agentrun.engine.world import iterate_packages

    agents = [load_package_source(file).agent for file in files] + list(_read_packages(beside))
    return {fingerprint(each): each for agent in agents for each in iterate_packages(agent)}


def _read_packages(files: Iterable[Path]) -> Iterator[Package]:
    from agentrun.compiler.package_file import read_package
    from agentrun.errors import PackageError

    for file in files:
        try:
            yield read_package(file).agent
        except PackageError:
            continue


def redact_family(family: RunFamily) -> RunFamily:
    """The journals without the credentials of this environment, which another process may not have known."""
    from msgspec.structs import replace

    from agentrun.credentials import hidden_secrets
    from agentrun.journal.family import ReadJournal

    def redact(journal: ReadJournal) -> ReadJournal:
        records = (replace(each, fact=hidden_secrets.redactor.redact_struct(each.fact)) for each in journal.records)
        return replace(journal, records=tuple(records))

    return replace(
        family, root=redact(family.root), children={run: redact(each) for run, each in family.children.items()}
    )


def exit_code(family: RunFamily) -> int:
    """0, or that of the first journal that is damaged."""
    return next((journal.error.exit_code for journal in family.journals if journal.error is not None), 0)


def show_run_error(run: str | None, error: AgentrunError, *, as_json: bool, file: str | None = None) -> None:
    """Print an error about a run. Its JSON object has the run, and the call if the error is about one."""
    if not as_json:
        if file is not None:
            print_stderr(safe_text(f"{file}:"))
        show_error(error, as_json=False)
        return
    names = {"run": run, "call": error.fields.get("call"), "file": file}
    present = {name: value for name, value in names.items() if value is not None or name == "run"}
    click.echo(mask(json_line({**present, "error": error.as_json()})))
