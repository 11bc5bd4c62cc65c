"""`agentrun validate [PATH...]`"""

from __future__ import annotations

from pathlib import Path

import click

from agentrun.cli.console import json_option, print_stderr, show_problems
from agentrun.cli.options import IMPORTS_NOTICE, ExistingPath, imports_option
from agentrun.spec.problems import sort_problems
from agentrun.spec.safe_text import plural


@click.command("validate")
@click.argument("paths", nargs=-1, type=ExistingPath(exists=True, path_type=Path))
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@imports_option
@json_option
def command(paths: tuple[Path, ...], strict: bool, imports: bool, as_json: bool) -> int:
    """Check specs, shared files, cases and packages for mistakes.

    PATH is a file, or a directory in which every agentrun document is checked; the default is the working
    directory. The problems of all files are printed together, each with its line, its column and a fix. Schema
    errors come first: semantic checks run after they are fixed. Nothing is imported, started or fetched, unless you
    ask for it with --imports.

    --imports runs the project's code: it imports the functions of Python tools and hooks, in a process that gets no
    secrets of the environment.

    \b
    Examples:
      agentrun validate specs/support.yaml
      agentrun validate specs/ --imports
      agentrun validate specs/ --strict
      agentrun validate specs/ --json | jq .code
    """
    from agentrun.compiler.validate import find_documents, validate_document

    if imports:
        print_stderr(IMPORTS_NOTICE)
    found = [document for path in paths or (Path(),) for document in find_documents(path)]
    problems = sort_problems(problem for document in found for problem in validate_document(document))
    if imports:
        from agentrun.cli.import_check import check_imports

        checked = check_imports(found)
        problems = sort_problems([*problems, *checked.problems])
        print_stderr(checked.summary())
    show_problems(problems, as_json=as_json)
    errors = [problem for problem in problems if strict or problem.severity == "error"]
    if not as_json:
        print_stderr(_summary(len(found), len(errors), len(problems) - len(errors)))
    return 2 if errors or not found else 0


def _summary(files: int, errors: int, warnings: int) -> str:
    if not files:
        return "no agentrun documents found (a document has the key `agentrun:`)"
    counts = f"{plural(errors, 'error')}, {plural(warnings, 'warning')}" if errors or warnings else "no problems"
    return f"{plural(files, 'file')} checked: {counts}"
