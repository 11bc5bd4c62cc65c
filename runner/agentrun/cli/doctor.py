"""`agentrun doctor`"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from agentrun.cli.console import json_line, json_option, wants_color

API_KEYS = {"OPENAI_API_KEY": "openai", "ANTHROPIC_API_KEY": "anthropic", "GEMINI_API_KEY": "gemini"}
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
@json_option
def command(as_json: bool) -> int:
    """Check the installation and the environment, and show how to fix problems.

    API keys are checked but never printed. Exit code 2 if something is wrong.

    \b
    Examples:
      agentrun doctor
      agentrun doctor --json
    """
    findings = [*_check_installation(), *_check_keys(), *_check_project()]
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


def _check_keys() -> Iterator[DoctorFinding]:
    for name, provider in API_KEYS.items():
        if os.environ.get(name, "").strip():
            yield DoctorFinding(name, "ok", "set")
        else:
            yield DoctorFinding(name, "note", f"not set, so {provider} can only be replayed from cassettes")


def _check_project() -> Iterator[DoctorFinding]:
    from agentrun.spec.problems import DocumentError
    from agentrun.spec.project import find_project

    try:
        project = find_project(Path.cwd() / "spec.yaml")
    except DocumentError as error:
        for problem in error.problems:
            yield DoctorFinding("project", "wrong", f"{problem.place}: {problem.message}", problem.hint)
        return
    yield DoctorFinding("project", "ok", f"root {project.root}")
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
