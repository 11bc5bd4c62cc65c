"""A small program that starts one command and sees to it that nothing of it is left.

It is run by file, isolated and without site packages, so that it starts in a few milliseconds; `processes.py` talks to
it over a socket. It imports nothing of agentrun.

Rule 1  The command gets a group, an environment and descriptors of its own: 0 to 2, and 3 if one is handed on. Its
        session is the keeper's, which has no terminal.
Rule 2  On Linux every descendant ends up below the keeper, also one that forks twice or takes a session of its own,
        because the keeper is their reaper. Elsewhere it ends the command's process group, and a child that leaves that
        group is out of reach.
Rule 3  When the command ends, or the other side of the socket closes (by wish, or because agentrun was killed), all
        descendants get SIGTERM, then `grace`, then SIGKILL until none is left.
Rule 4  Only SIGKILL and SIGSTOP reach the keeper itself. A command may send it those: it has the same user.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
MAX_KILL_SECONDS = 1.0
"""Seconds after which a process that SIGKILL does not end (another user's, or stuck in the kernel) is given up."""
LENGTH_BYTES = 8
"""Bytes before the order that say how long it is."""
IGNORED_SIGNALS = (
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGTERM",
    "SIGUSR1",
    "SIGUSR2",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGALRM",
)


def run_supervisor() -> None:
    control, side, folder = (int(each) for each in sys.argv[1:4])
    for descriptor in (control, side, folder):
        if descriptor >= 0:
            os.set_inheritable(descriptor, descriptor == side == 3)
    order = _read_order(control)
    if order is None:
        return  # whoever wanted it does not want it any more
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
    for descriptor in (0, 1, 2):  # the pipes are the command's alone, or nobody would see their end
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
    """The command and all its descendants."""

    def __init__(self, pid: int, *, reaps: bool) -> None:
        self.pid = pid
        self.status: int | None = None
        """How the command ended."""
        self._reaps = reaps

    def reap(self) -> bool:
        """Whether anybody is left."""
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
        """End all of them: whether nobody is left. Who goes on forking meets SIGKILL again and again."""
        if not self.reap():
            return True
        self._send(signal.SIGTERM)
        self._send(signal.SIGCONT)  # who is stopped hears nothing else
        killing = time.monotonic() + grace
        while self.reap():
            left = killing - time.monotonic()
            if left < -MAX_KILL_SECONDS:
                return False
            if left <= 0:
                self._send(signal.SIGKILL)
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
                continue  # it is gone, or another user's

    def _group(self, number: int) -> bool:
        try:
            os.killpg(self.pid, number)
        except OSError:
            return False
        return True


def become_reaper() -> bool:
    """Whether all descendants whose parents end become children of this process from now on."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        import ctypes  # late: there are builds of Python without it

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return False
    return bool(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def find_descendants(root: int) -> list[int]:
    """All processes below one, parents first, as /proc shows them at this moment."""
    children: dict[int, list[int]] = {}
    for pid, parent, _ in list_processes():
        children.setdefault(parent, []).append(pid)
    found = list(children.get(root, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def list_processes() -> list[tuple[int, int, int]]:
    """Pid, parent and session of every process that lives."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The second field is a name in brackets, which may hold brackets and spaces.
                state, parent, _, session = file.read().rpartition(b")")[2].split()[:4]
        except OSError:
            continue
        if state != b"Z":
            found.append((int(name), int(parent), int(session)))
    return found


def _read_order(control: int) -> list[bytes] | None:
    """Milliseconds of grace, how many arguments, the program, its arguments, its variables. None: nobody asks."""
    data = b""
    while len(data) < LENGTH_BYTES or len(data) < LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big"):
        piece = os.read(control, 1 << 20)
        if not piece:
            return None
        data += piece
    return data[LENGTH_BYTES:].split(b"\0")


def _set_up_signals() -> int:
    """A descriptor that can be read when a child has ended."""
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
        return  # nobody is there any more


if __name__ == "__main__":
    run_supervisor()
