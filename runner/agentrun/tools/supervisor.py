"""A small program that starts one command and kills its whole process tree at the end.

It is run by its file, isolated and without site packages, so that it starts in a few milliseconds. `processes.py`
controls it over a socket. It imports nothing from agentrun.

Rule 1  The command gets its own process group, environment and descriptors: 0 to 2, and 3 if it is passed. Its session
        is that of the supervisor, which has no terminal.
Rule 2  On Linux the supervisor is the reaper of all descendants, even if they fork twice or start a new session. On
        other systems it kills the process group, and a child that leaves the group is not found.
Rule 3  When the command ends or the socket is closed (on request, or because agentrun was killed), all descendants get
        SIGTERM, and after `grace` SIGKILL until none is left.
Rule 4  The supervisor ignores all signals except SIGKILL and SIGSTOP. A command can send these, because it has the same
        user.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
MAX_KILL_SECONDS = 1.0
MIN_KILLS = 10
"""How long and how often to try SIGKILL at least. After that a process of another user or one that hangs in the kernel
is left. The seconds alone may pass while this process itself does not run."""
LENGTH_BYTES = 8
"""The size of the length before the order."""
IGNORED_SIGNALS = (
    *("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1"),
    *("SIGUSR2", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGALRM"),
)


def run_supervisor() -> None:
    control, side, folder = (int(each) for each in sys.argv[1:4])
    for descriptor in (control, side, folder):
        if descriptor >= 0:
            os.set_inheritable(descriptor, descriptor == side == 3)
    order = _read_order(control)
    if order is None:
        return  # agentrun closed the socket
    grace, count, program, *words = order
    argv, variables = words[: int(count)], words[int(count) :]
    reaps = become_reaper()
    woken = _set_up_signals()
    try:
        os.fchdir(folder)
        pid = _spawn(program, argv, dict(each.split(b"=", 1) for each in variables), side)
    except OSError as error:
        _report(control, f"failed {error.errno}")
        return
    for descriptor in (side, folder):
        if descriptor >= 0:
            os.close(descriptor)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # close the pipes here, so that they end with the command
        os.dup2(nothing, descriptor)
    _report(control, f"started {pid}")
    family = ProcessTree(pid, reaps=reaps)
    while family.status is None:
        ready, _, _ = select.select([control, woken], [], [])
        if control in ready:
            break
        os.read(woken, 4096)
        family.reap()
    word = "ended" if family.terminate(int(grace) / 1000, woken) else "left"
    _report(control, f"{word} {'?' if family.status is None else os.waitstatus_to_exitcode(family.status)}")


class ProcessTree:
    def __init__(self, pid: int, *, reaps: bool) -> None:
        self.pid = pid
        self.status: int | None = None
        self._reaps = reaps

    def reap(self) -> bool:
        """Collect ended processes. Returns whether any process is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return not self._reaps and self._group(0)
            if pid == 0:
                return True
            if pid == self.pid:
                self.status = status

    def terminate(self, grace: float, woken: int) -> bool:
        """End all processes; SIGKILL is repeated for processes that keep forking. Returns whether none is left."""
        if not self.reap():
            return True
        self._send(signal.SIGTERM)
        self._send(signal.SIGCONT)  # a stopped process handles no other signal
        killing, kills = time.monotonic() + grace, 0
        while self.reap():
            left = killing - time.monotonic()
            if left < -MAX_KILL_SECONDS and kills >= MIN_KILLS:
                return False
            if left <= 0:
                self._send(signal.SIGKILL)
                kills += 1
            if select.select([woken], [], [], left if left > 0 else 0.005)[0]:
                os.read(woken, 4096)
        return True

    def _send(self, number: int) -> None:
        if not self._reaps:
            self._group(number)
            return
        for pid in find_descendants(os.getpid()):
            try:
                os.kill(pid, number)
            except OSError:
                continue  # it has ended, or belongs to another user

    def _group(self, number: int) -> bool:
        try:
            os.killpg(self.pid, number)
        except OSError:
            return False
        return True


def become_reaper() -> bool:
    """Make this process the parent of all orphaned descendants. Returns whether the system supports it."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        import ctypes  # late: some builds of Python do not have it

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return False
    return bool(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def find_descendants(root: int) -> list[int]:
    """All descendants of a process in /proc, parents first."""
    children: dict[int, list[int]] = {}
    for pid, parent, _ in list_processes():
        children.setdefault(parent, []).append(pid)
    descendants = list(children.get(root, ()))
    for pid in descendants:
        descendants += children.get(pid, ())
    return descendants


def list_processes() -> list[tuple[int, int, int]]:
    """Pid, parent and session of every running process."""
    processes = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The second field is a name in brackets, which may contain brackets and spaces.
                state, parent, _, session = file.read().rpartition(b")")[2].split()[:4]
        except OSError:
            continue
        if state != b"Z":
            processes.append((int(name), int(parent), int(session)))
    return processes


def _read_order(control: int) -> list[bytes] | None:
    """The grace time in milliseconds, the number of arguments, the program, its arguments, its variables. None: the
    socket was closed."""
    data = b""
    while len(data) < LENGTH_BYTES or len(data) < LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big"):
        piece = os.read(control, 1 << 20)
        if not piece:
            return None
        data += piece
    return data[LENGTH_BYTES:].split(b"\0")


def _set_up_signals() -> int:
    """Ignore signals, and return a descriptor that is readable when a child has ended."""
    for name in IGNORED_SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def _spawn(program: bytes, argv: list[bytes], environment: dict[bytes, bytes], side: int) -> int:
    return os.posix_spawn(
        program,
        argv,
        environment,
        file_actions=[(os.POSIX_SPAWN_DUP2, side, 3)] if side >= 0 else [],
        setpgroup=0,
        setsigmask=(),
        setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
    )


def _report(control: int, words: str) -> None:
    try:
        os.write(control, words.encode() + b"\n")
    except OSError:
        return  # agentrun has ended


if __name__ == "__main__":
    run_supervisor()
