"""How long people wait, measured against what the machine can do at this moment.

Rule 1  A limit is a ratio to a baseline of the same run, so that a slow or busy machine does not fail it.
Rule 2  Repetitions are interleaved: one round runs the baseline and every command once. What disturbs the
        machine for a second then disturbs all of them.
Rule 3  The smallest time counts, for noise only adds; the median is shown beside it.
Rule 4  Nothing is written but the plot of the cost of replays (`docs/replay-cost.svg`), if it changed by more than
        noise, and what `--json FILE` asks for.

To add a benchmark, add a function below, marked `@command` (a whole process), `@inside` (CPU time of a call, as a
multiple of parsing the large spec as YAML) or `@figure` (a ratio that a call gives, in a process of its own). Its first
line of documentation is what the table shows.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from large_spec import large_spec

ROOT = Path(__file__).parents[1]
PYTHON = sys.executable
AGENTRUN = str(Path(PYTHON).with_name("agentrun"))
BASELINE = [PYTHON, "-c", "pass"]


@dataclass(frozen=True)
class Result:
    name: str
    least: float
    median: float
    limit: float

    @property
    def passed(self) -> bool:
        return self.least <= self.limit


@dataclass(frozen=True)
class Command:
    """A process to time; `limit` is how many times as long as the baseline it may take."""

    name: str
    limit: float
    argv: Callable[[Path], list[str]]


@dataclass(frozen=True)
class Inside:
    """A call to time in a fresh process, after its imports; `limit` is a multiple of a bare YAML parse of the spec."""

    name: str
    limit: float
    call: Callable[[Path], object]


@dataclass(frozen=True)
class Figure:
    """A call that gives a ratio, in a fresh process; `limit` is the greatest that is allowed."""

    name: str
    limit: float
    call: Callable[[Path], float]


COMMANDS: list[Command] = []
INSIDE: list[Inside] = []
FIGURES: list[Figure] = []


def command(*, limit: float) -> Callable[[Callable[[Path], list[str]]], Callable[[Path], list[str]]]:
    def register(argv: Callable[[Path], list[str]]) -> Callable[[Path], list[str]]:
        COMMANDS.append(Command(_title(argv), limit, argv))
        return argv

    return register


def inside(*, limit: float) -> Callable[[Callable[[Path], object]], Callable[[Path], object]]:
    def register(call: Callable[[Path], object]) -> Callable[[Path], object]:
        INSIDE.append(Inside(_title(call), limit, call))
        return call

    return register


def figure(*, limit: float) -> Callable[[Callable[[Path], float]], Callable[[Path], float]]:
    def register(call: Callable[[Path], float]) -> Callable[[Path], float]:
        FIGURES.append(Figure(_title(call), limit, call))
        return call

    return register


def _title(function: Callable[..., object]) -> str:
    return (function.__doc__ or function.__name__).splitlines()[0].rstrip(".")


# --- the benchmarks; each gets the path of the large spec ---------------------------------------------------


@command(limit=12)
def help_text(_spec: Path) -> list[str]:
    """agentrun --help."""
    return [AGENTRUN, "--help"]


@command(limit=35)
def validate(spec: Path) -> list[str]:
    """agentrun validate, 200 lines."""
    return [AGENTRUN, "validate", str(spec)]


@command(limit=45)
def replay(_spec: Path) -> list[str]:
    """agentrun specs/support.yaml, replayed."""
    return [AGENTRUN, "--mode", "replay", "specs/support.yaml"]


@inside(limit=15)
def validate_in_process(path: Path) -> object:
    """validate 200 lines: CPU to CSafeLoader."""
    # about 2 of it compile and render the prompt once, to find a template that does not end
    # late: only the process that is measured pays for these
    from agentrun.compiler.validate import validate_document

    problems = validate_document(path)
    if problems:
        sys.exit("\n".join(str(problem) for problem in problems))
    return problems


@figure(limit=4)
def core_per_fact(spec: Path) -> float:
    """core and memory journal: CPU to json."""
    from core_run import per_fact

    return per_fact(spec.parent)


@figure(limit=1.15)
def core_growth(spec: Path) -> float:
    """core: growth over 50 to 2,000 turns, exponent."""
    from core_run import growth

    return growth(spec.parent)


@figure(limit=2)
def core_fold(spec: Path) -> float:
    """fold of 2,000 turns: CPU to json."""
    from core_run import fold_time

    return fold_time(spec.parent)


@figure(limit=1.4)
def live_short(spec: Path) -> float:
    """live, 5 steps: CPU to httpx by hand."""
    from live_run import SHORT, overhead

    return overhead(spec.parent, SHORT)


@figure(limit=1)
def live_long(spec: Path) -> float:
    """live, 200 steps: CPU to httpx by hand."""
    from live_run import LONG, overhead

    return overhead(spec.parent, LONG)


@figure(limit=1)
def live_growth(spec: Path) -> float:
    """live, growth per step to httpx by hand."""
    from live_run import growth

    return growth(spec.parent)


@figure(limit=1.8)
def arun_short(spec: Path) -> float:
    """arun with a Python tool, 5 steps: CPU to httpx."""
    from live_run import SHORT, arun_overhead

    return arun_overhead(spec.parent, SHORT)


@figure(limit=1)
def arun_long(spec: Path) -> float:
    """arun with a Python tool, 200 steps: CPU to httpx."""
    from live_run import LONG, arun_overhead

    return arun_overhead(spec.parent, LONG)


@figure(limit=4.5)
def tool_call(spec: Path) -> float:
    """python tool: a call to asyncio.to_thread."""
    from tool_call import overhead

    return overhead(spec.parent)


@figure(limit=0.7)
def replay_short(spec: Path) -> float:
    """replay, 5 steps: CPU to httpx under vcrpy."""
    from replay_run import SHORT, to_vcrpy

    return to_vcrpy(spec.parent, SHORT)


@figure(limit=0.38)
def replay_short_bodies(spec: Path) -> float:
    """replay, 5 steps: CPU to vcrpy comparing bodies."""
    from replay_run import SHORT, to_vcrpy

    return to_vcrpy(spec.parent, SHORT, bodies=True)


@figure(limit=0.28)
def replay_middle(spec: Path) -> float:
    """replay, 50 steps: CPU to httpx under vcrpy."""
    from replay_run import MIDDLE, to_vcrpy

    return to_vcrpy(spec.parent, MIDDLE)


@figure(limit=0.14)
def replay_long(spec: Path) -> float:
    """replay, 200 steps: CPU to httpx under vcrpy."""
    from replay_run import LONG, to_vcrpy

    return to_vcrpy(spec.parent, LONG)


@figure(limit=3.5)
def replay_to_floor(spec: Path) -> float:
    """replay, 200 steps: CPU to CSafeLoader + json."""
    from replay_run import LONG, to_floor

    return to_floor(spec.parent, LONG)


@figure(limit=1.1)
def replay_growth(spec: Path) -> float:
    """replay, growth from 50 to 200 steps, exponent."""
    from replay_run import exponent

    return exponent(spec.parent)


@figure(limit=60)
def replay_memory(spec: Path) -> float:
    """replay, 200 steps: peak MB of the process."""
    from replay_run import memory

    return memory(spec.parent)


@figure(limit=0.6)
def cassette_size(spec: Path) -> float:
    """cassette of 200 steps: MB."""
    from replay_run import LONG, file_size

    return file_size(spec.parent, LONG)


@figure(limit=6)
def long_cassette_size(spec: Path) -> float:
    """cassette of 2,000 steps: MB."""
    from replay_run import VERY_LONG, file_size

    return file_size(spec.parent, VERY_LONG)


@figure(limit=1.2)
def reading_growth(spec: Path) -> float:
    """audit, show, diff: 200 to 2,000 steps, exponent."""
    from replay_run import reading_exponent

    return reading_exponent(spec.parent)


@figure(limit=3)
def recording(spec: Path) -> float:
    """recording, 2,000 steps: CPU to the same live run."""
    from record_run import VERY_LONG, to_live

    return to_live(spec.parent, VERY_LONG)


@figure(limit=1.1)
def recording_growth(spec: Path) -> float:
    """recording, growth from 200 to 2,000 steps, exponent."""
    from record_run import exponent

    return exponent(spec.parent)


@figure(limit=0.11)
def suite(spec: Path) -> float:
    """agentrun test, 1,000 cases: CPU to pytest + vcrpy."""
    from suite_run import to_client_each

    return to_client_each(spec.parent)


@figure(limit=0.18)
def suite_in_pytest(spec: Path) -> float:
    """pytest, 1,000 cases: CPU to pytest + vcrpy."""
    from suite_run import pytest_to_client_each

    return pytest_to_client_each(spec.parent)


@figure(limit=6)
def suite_to_reading(spec: Path) -> float:
    """agentrun test, 1,000 cases: CPU to CSafeLoader."""
    from suite_run import to_reading

    return to_reading(spec.parent)


@figure(limit=0.9999)
def suite_to_client_shared(spec: Path) -> float:
    """200 cases: CPU to a shared client."""
    from suite_run import to_client_shared

    return to_client_shared(spec.parent)


@figure(limit=4)
def session_start(spec: Path) -> float:
    """session of 200 runs: CPU of the last starts to the first."""
    from session_runs import last_to_first

    return last_to_first(spec.parent)


@figure(limit=12)
def list_runs(spec: Path) -> float:
    """runs, 10,000 as text: time to a bare query."""
    # 100 ms on a machine where the query takes 8 ms
    from stored_runs import listing

    return listing(spec.parent, waiting=False)


@figure(limit=20)
def list_waiting_runs(spec: Path) -> float:
    """runs, the 50 that wait: time to a bare query."""
    # 5 ms where the query takes 0.22 ms
    from stored_runs import listing

    return listing(spec.parent, waiting=True)


@figure(limit=2)
def rebuild_index(spec: Path) -> float:
    """index of 10,000 runs: time to json + sha256."""
    # 2 s where json and sha256 take 1 s
    from stored_runs import rebuilding

    return rebuilding(spec.parent)


@figure(limit=4)
def verify_journal(spec: Path) -> float:
    """verify 51,200 records: CPU to json + sha256."""
    # 1.6 s where json and sha256 take 0.4 s
    from stored_runs import verifying

    return verifying(spec.parent)


@figure(limit=64)
def verify_journal_memory(spec: Path) -> float:
    """verify 51,200 records: MiB above imports."""
    from stored_runs import verify_memory

    return verify_memory(spec.parent)


@figure(limit=5)
def append_record(spec: Path) -> float:
    """append without sync: CPU to json + sha256."""
    # 57,000 records per second where json and sha256 take 3.5 µs
    from stored_runs import appending

    return appending(spec.parent)


@figure(limit=1.111)
def append_synced_record(spec: Path) -> float:
    """append with sync: time to write + fdatasync."""
    from stored_runs import syncing

    return syncing(spec.parent)


@figure(limit=1.15)
def live_stored(spec: Path) -> float:
    """live, 200 steps: CPU stored to in memory."""
    from live_run import store_overhead

    return store_overhead(spec.parent)


@figure(limit=1.1)
def live_redacted(spec: Path) -> float:
    """live, 200 steps: CPU with 40 known secrets to none."""
    from live_run import redaction_overhead

    return redaction_overhead(spec.parent)


# --- measuring ----------------------------------------------------------------------------------------------


def run(argv: Sequence[str]) -> str:
    """Run a process that must succeed, and return its standard output."""
    # CI: nothing that is measured may go to the network.
    environment = {**os.environ, "CI": "true"}
    done = subprocess.run(
        argv, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"bench: {' '.join(argv)} failed with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def seconds(argv: Sequence[str]) -> float:
    start = time.perf_counter()
    run(argv)
    return time.perf_counter() - start


def measure_commands(spec: Path, rounds: int) -> list[Result]:
    commands = [(item, item.argv(spec)) for item in COMMANDS]
    for argv in (BASELINE, *(argv for _, argv in commands)):
        run(argv)  # the first run fills the disk cache and writes the bytecode
    baseline: list[float] = []
    times: dict[str, list[float]] = {item.name: [] for item, _ in commands}
    for _ in range(rounds):
        baseline.append(seconds(BASELINE))
        for item, argv in commands:
            times[item.name].append(seconds(argv))
    return [
        Result(
            item.name,
            min(times[item.name]) / min(baseline),
            statistics.median(times[item.name]) / statistics.median(baseline),
            item.limit,
        )
        for item, _ in commands
    ]


def measure_inside(spec: Path, rounds: int) -> list[Result]:
    results = []
    for item in INSIDE:
        argv = [PYTHON, __file__, "--inside", item.name, str(spec)]
        # The first process tells what the call imports; the others import that before they start the clock.
        modules = json.loads(run(argv))["modules"]
        ratios = [json.loads(run([*argv, *modules]))["ratio"] for _ in range(rounds)]
        results.append(Result(item.name, min(ratios), statistics.median(ratios), item.limit))
    return results


def measure_figures(spec: Path, rounds: int) -> list[Result]:
    results = []
    for item in FIGURES:
        argv = [PYTHON, __file__, "--figure", item.name, str(spec)]
        values = [float(run(argv)) for _ in range(rounds)]
        results.append(Result(item.name, min(values), statistics.median(values), item.limit))
    return results


def time_inside(name: str, spec: Path, modules: list[str]) -> None:
    """What the process started by `measure_inside` does."""
    for module in modules:
        __import__(module)
    before = set(sys.modules)
    call = next(item.call for item in INSIDE if item.name == name)
    start = time.process_time()
    call(spec)
    spent = time.process_time() - start
    new = [module for module in sys.modules if module not in before]
    print(json.dumps({"ratio": spent / yaml_time(spec), "modules": new}))


def yaml_time(spec: Path) -> float:
    """Least CPU seconds to parse a file as YAML, in C."""
    import yaml  # late: only this process needs it

    text, times = spec.read_text(encoding="utf-8"), []
    for _ in range(10):
        start = time.process_time()
        yaml.load(text, yaml.CSafeLoader)
        times.append(time.process_time() - start)
    return min(times)


def table(results: list[Result]) -> str:
    rows = [f"{'':48}{'least':>9}{'median':>9}{'limit':>9}"]
    rows += [
        f"{item.name:48}{item.least:>9.3g}{item.median:>9.3g}{item.limit:>9g}{'' if item.passed else '  OVER'}"
        for item in results
    ]
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure agentrun against a baseline of the same run.")
    parser.add_argument("--rounds", type=int, default=15, help="repetitions (default 15)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument("--inside", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--figure", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--plot", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        name, spec, *modules = options.inside
        time_inside(name, Path(spec), modules)
        return
    if options.figure:
        name, spec = options.figure
        os.environ["XDG_STATE_HOME"] = str(Path(spec).parent / "state")  # where stores are known to be the user's own
        print(next(item.call for item in FIGURES if item.name == name)(Path(spec)))
        return
    if options.plot:
        from replay_run import plot  # late: only this process needs it

        plot(options.plot.parent)
        return
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder, "large.yaml")
        spec.write_text(large_spec(), encoding="utf-8")
        results = measure_commands(spec, options.rounds) + measure_inside(spec, options.rounds)
        results += measure_figures(spec, min(options.rounds, 3))
        run([PYTHON, __file__, "--plot", str(spec)])
    print(table(results))
    if options.json:
        rows = [asdict(item) | {"passed": item.passed} for item in results]
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    if not all(item.passed for item in results):
        sys.exit(1)


if __name__ == "__main__":
    main()
