"""The objects that are created between the command line and the first decision of a recorded run."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import pytest
from msgspec import Struct

from agentrun.cli import run
from agentrun.cli.group import run_command
from agentrun.testing.provider import ScriptedProvider

from ..tools.agent_runs import STORY, Runs

ROLES = {
    "the request, and what is known of it": {
        "engine.request.Request",
        "engine.begin.AdmittedRequest",
        "engine.sessions.Session",
    },
    "the plan, and the cassette that it is about": {
        "cli.plan.RunPlan",
        "engine.recording.CassetteRecording",
        "engine.recording.NewCase",
    },
    "the world": {"engine.world.World"},
    "its ports": {
        "engine.approvals.NoApprover",
        "engine.worlds.record.RecordingExchanger",
        "engine.cassette_ports._CassetteApprover",
        "engine.cassette_ports._CassetteSender",
        "engine.cassette_ports._CassetteTool",
        "engine.crew_registry.CrewRegistry",
        "engine.models.AttachmentChecker",
        "engine.models.HttpProvider",
        "engine.env_file.EnvFile",
        "engine.settings.Settings",
        "engine.event_loop.SystemClock",
        "engine.http_clients.HttpClients",
        "engine.memory.MemoryBlobs",
        "engine.worlds.live._RedactingSender",
        "engine.worlds.live._SecretFreeBlobs",
    },
    "the log": {"engine.driver.RunLog"},
    "messages of other processes": {"engine.inbox.MessageTaker"},
    "the crew": {"engine.event_loop.TaskCrew", "engine.perform.Performer", "engine.models.ModelCaller"},
    "the terminal": {
        "cli.group.AgentrunGroup",
        "cli.interrupt.InterruptHandler",
        "cli.keyboard.Keyboard",
        "cli.options.ExistingPath",
        "cli.options.SpecFile",
        "cli.run_output.RunOutput",
        "cli.stdout_guard._OwnStream",
    },
}
BAGS = {
    "engine.request.Request",
    "engine.begin.AdmittedRequest",
    "cli.plan.RunPlan",
    "engine.recording.NewCase",
    "engine.world.World",
}
"""All that has fields and does nothing."""
CONSTANTS = ("engine.worlds.replay.", "engine.begin.PackagePolicy", "engine.spending.")
"""Values that modules make when they are imported."""


class ObjectWatcher:
    """Instances of classes of `cli/` and `engine/` that functions were given, held or returned before a decision."""

    def __init__(self) -> None:
        self.seen: dict[str, type] = {}
        self._is_over = False

    def __call__(self, frame: FrameType, event: str, result: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if self._is_over or not module.startswith("agentrun"):
            return
        if (module, frame.f_code.co_name) == ("agentrun.core.decide", "decide"):
            self._is_over = True
            return
        for value in [*frame.f_locals.values(), result if event == "return" else None]:
            kind = type(value)
            if kind.__module__.startswith(("agentrun.cli", "agentrun.engine")):
                self.seen[f"{kind.__module__}.{kind.__qualname__}".removeprefix("agentrun.")] = kind


def watch_recording(folder: Path) -> ObjectWatcher:
    """A recording, from the command line on."""
    runs, watch, here = Runs(folder), ObjectWatcher(), Path.cwd()
    with ScriptedProvider(STORY) as server:
        environment = {"OPENAI_API_KEY": "not-a-real-key", "OPENAI_BASE_URL": f"{server.url}/v1"}
        with patch.dict(os.environ, environment):
            os.chdir(folder)
            before = sys.getprofile()
            sys.setprofile(watch)
            try:
                assert run_command([runs.spec.name, "--mode", "record", "--yes", "--quiet"]) == 0
            finally:
                sys.setprofile(before)
                os.chdir(here)
    return watch


def test_every_object_of_a_recording_has_a_known_role(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seen = watch_recording(tmp_path).seen
    made = {name for name in seen if not name.startswith(CONSTANTS)}
    named = set().union(*ROLES.values())
    assert made <= named
    assert named - made <= ROLES["the terminal"]
    assert {name for name in made if issubclass(seen[name], Struct)} == BAGS
    assert capfd.readouterr().out == "It is late.\n"


PLANTED_MODULE = """
from msgspec import Struct

class Errand(Struct):
    plan: object

def unpacked(errand):
    return errand.plan
"""


def test_unknown_parameter_object_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted: dict[str, Any] = {"__name__": "agentrun.cli.planted"}
    exec(PLANTED_MODULE, planted)  # noqa: S102  # as if it were a module of the product
    real = run.__dict__["_run_plan"]
    monkeypatch.setattr(run, "_run_plan", lambda plan, *rest: real(planted["unpacked"](planted["Errand"](plan)), *rest))
    assert "cli.planted.Errand" in watch_recording(tmp_path).seen
