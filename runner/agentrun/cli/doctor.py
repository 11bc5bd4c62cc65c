"""`agentrun doctor`"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, get_args

import click

from agentrun.cli.console import json_line, json_option, print_stderr, wants_color
from agentrun.cli.options import IMPORTS_NOTICE, imports_option
from agentrun.credentials import NOT_SECRET_VARIABLE, removed_names, short_credentials
from agentrun.errors import HostError
from agentrun.redactor import SHORTEST_SECRET
from agentrun.spec.problems import DocumentError
from agentrun.spec.project import (
    FORMER_VARIABLES,
    Project,
    declared_settings,
    find_project,
    project_root,
    working_secrets,
)
from agentrun.spec.source_files import FileRefused, display_path

PROVIDER_OF_KEY = {"OPENAI_API_KEY": "openai", "ANTHROPIC_API_KEY": "anthropic", "GEMINI_API_KEY": "gemini"}
REQUIRED_PACKAGES = (
    "click", "msgspec", "PyYAML", "jsonschema-rs", "Jinja2", "rfc8785", "cel-expr-python", "google-re2", "httpx",
    "vcrpy", "pydantic-settings", "genai-prices",
)  # fmt: skip
EXTRA_PACKAGES = {"pytest": "test", "syrupy": "test", "mcp": "mcp"}


class DoctorFinding(NamedTuple):
    what: str
    state: str
    """ok, note (agentrun works without it) or wrong."""
    text: str
    fix: str | None = None


@click.command("doctor")
@imports_option
@json_option
def command(imports: bool, as_json: bool) -> int:
    """Check the installation and the settings, and show how to fix problems.

    Each setting is shown with the place that it comes from, but never its value. Exit code 2 if something is wrong.

    --imports runs the project's code: it imports the functions of the Python tools and hooks of all specs, in a process
    that gets no secrets of the environment.

    \b
    Examples:
      agentrun doctor
      agentrun doctor --imports
      agentrun doctor --json
    """
    if imports:
        print_stderr(IMPORTS_NOTICE)
    findings = [*_check_installation(), *_check_settings(), *_check_project(), *(_check_imports() if imports else ())]
    for finding in findings:
        if as_json:
            click.echo(json_line(finding._asdict()))
            continue
        mark, tint = {"ok": ("ok   ", "green"), "note": ("note ", "yellow")}.get(finding.state, ("WRONG", "red"))
        click.secho(mark, fg=tint, nl=False, color=wants_color(sys.stdout))
        click.echo(f" {finding.what}: {finding.text}")
        if finding.fix:
            click.echo(f"       → {finding.fix}")
    return 2 if any(finding.state == "wrong" for finding in findings) else 0


def _installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _check_installation() -> Iterator[DoctorFinding]:
    from agentrun import distribution
    from agentrun.distribution import install_hint

    yield DoctorFinding("agentrun", "ok", f"{distribution.version()} (distribution {distribution.DISTRIBUTION_NAME})")
    for name, provides in distribution.rival_distributions().items():
        shown = re.sub(r"[^\w.-]", "?", name)
        text = f"the distribution {shown} also provides a {' and a '.join(provides)} called agentrun"
        yield DoctorFinding("agentrun", "note", text, f"run pip uninstall {shown}, then {install_hint()}")
    yield DoctorFinding("python", "ok", f"{platform.python_version()} on {platform.system()}")
    for name in REQUIRED_PACKAGES:
        version = _installed_version(name)
        fix = None if version else install_hint()
        yield DoctorFinding(name, "ok" if version else "wrong", version or "not installed", fix)
    for name, extra in EXTRA_PACKAGES.items():
        version = _installed_version(name)
        fix = None if version else install_hint(extra)
        yield DoctorFinding(name, "ok" if version else "note", version or f"not installed (extra `{extra}`)", fix)
    yield from _check_libyaml()


def _check_libyaml() -> Iterator[DoctorFinding]:
    import yaml

    if not yaml.__with_libyaml__:
        fix = "install the headers of libyaml and build PyYAML again"
        yield DoctorFinding("libyaml", "note", "missing, so reading YAML is about ten times slower", fix)


def _check_settings() -> Iterator[DoctorFinding]:
    """Each setting and where it comes from, never its value."""
    try:
        from agentrun.engine.env_file import ENV_FILE, read_project_env_file
        from agentrun.engine.settings import Settings, setting_names
    except ImportError:
        return  # the missing package is reported already
    root = project_root(Path.cwd() / "spec.yaml")
    file = read_project_env_file(root, ())
    wrong, declared = _wrong_settings(), _declared_settings(root)
    for field, about in Settings.model_fields.items():
        names = setting_names(field)
        name = next((each for each in names if os.environ.get(each, "").strip()), names[-1])
        if name in wrong:
            yield DoctorFinding(name, "wrong", "its value cannot be used", wrong[name])
        elif os.environ.get(name, "").strip():
            yield DoctorFinding(name, "ok", "set in the environment")
        elif name in file.given:
            yield DoctorFinding(name, "ok", f"set in {ENV_FILE}")
        elif field in declared:
            yield DoctorFinding(name, "ok", "set in pyproject.toml")
        elif about.default is not None:
            yield DoctorFinding(name, "ok", "default")
        else:
            state = "note" if name in PROVIDER_OF_KEY else "ok"
            effect = f", so {PROVIDER_OF_KEY[name]} can only be replayed from cassettes" if state == "note" else ""
            fix = file.hint(name) if name in file.values else None
            yield DoctorFinding(name, state, f"not set{effect}", fix)
    for name in wrong.keys() & FORMER_VARIABLES.keys():
        yield DoctorFinding(name, "wrong", "no longer a setting", wrong[name])
    variables = file.reveal_all() | dict(os.environ)
    for name in short_credentials(variables, working_secrets()):
        fix = f"use a value of at least {SHORTEST_SECRET} characters"
        yield DoctorFinding(name, "note", "a credential that is too short to be redacted", fix)
    for name in sorted(removed_names(variables)):
        why = f"not redacted because of {NOT_SECRET_VARIABLE}, unless a spec uses it as the key of a provider"
        yield DoctorFinding(name, "note", why)
    if file.unread or file.warning:
        yield DoctorFinding(ENV_FILE, "note", file.unread or file.warning)
    elif file.values:
        yield DoctorFinding(ENV_FILE, "ok", "live runs read the API keys in it, and the variables that the spec names")


def _wrong_settings() -> dict[str, str | None]:
    """The variables whose value cannot be used, with a hint."""
    from agentrun.engine.settings import RunModeName, wrong_settings
    from agentrun.spec.project import LIMIT_VARIABLE

    wrong, modes = wrong_settings(), get_args(RunModeName)
    if os.environ.get("AGENTRUN_MODE", "") not in ("", *modes):
        wrong["AGENTRUN_MODE"] = f"set it to {', '.join(modes[:-1])} or {modes[-1]}"
    try:
        find_project(Path.cwd() / "spec.yaml")
    except HostError as error:
        wrong[error.fields.get("name", LIMIT_VARIABLE)] = error.hint
    except DocumentError:
        pass  # the problems are reported with the project
    return wrong


def _declared_settings(root: Path) -> frozenset[str]:
    try:
        return declared_settings(root)
    except (ValueError, FileRefused):  # not TOML or not readable, which is reported with the project
        return frozenset()


def _check_project() -> Iterator[DoctorFinding]:
    try:
        project = find_project(Path.cwd() / "spec.yaml")
    except HostError:
        return  # the variable is reported with the settings
    except DocumentError as error:
        for problem in error.problems:
            yield DoctorFinding("project", "wrong", f"{problem.place}: {problem.message}", problem.hint)
        return
    yield DoctorFinding("project", "ok", f"root {project.root}")
    yield _check_store(project)
    for folder in project.import_roots:
        if not (project.root / folder).is_dir():
            fix = "correct `import_roots` of [tool.agentrun] in pyproject.toml"
            yield DoctorFinding("import root", "wrong", f"{folder} does not exist", fix)
    free = shutil.disk_usage(project.root).free // 1024 // 1024
    if free < 100:
        yield DoctorFinding("disk", "wrong", f"only {free} MiB are free", "free some space for journals and cassettes")
    if not os.access(project.root, os.W_OK):
        fix = "check the owner and the permissions of its root"
        yield DoctorFinding("disk", "wrong", "the project is not writable", fix)


def _check_store(project: Project) -> DoctorFinding:
    from agentrun.store.files import RETENTION_RULE
    from agentrun.store.owner import distrust

    if not project.stores_runs:
        return DoctorFinding("store", "note", "runs are not stored, because AGENTRUN_STORE is none")
    text = f"runs are stored in {display_path(project.store_directory, project.root)}: {RETENTION_RULE}"
    if (found := distrust(project)) is None:
        return DoctorFinding("store", "ok", text)
    return DoctorFinding("store", "note", f"{text}; it is not trusted: {found[1]}", "see agentrun store --help")


def _check_imports() -> Iterator[DoctorFinding]:
    from agentrun.cli.import_check import check_imports
    from agentrun.compiler.validate import find_documents

    checked = check_imports(find_documents(project_root(Path.cwd() / "spec.yaml")))
    for problem in checked.problems:
        yield DoctorFinding("imports", "wrong", f"{problem.place}: {problem.message}", problem.hint)
    for path in checked.unchecked:
        name = display_path(path)
        fix = f"agentrun validate {shlex.quote(name)}"
        yield DoctorFinding("imports", "note", f"{name} has errors, so its functions were not imported", fix)
    if not checked.problems:
        yield DoctorFinding("imports", "ok", checked.summary())
