"""A real terminal device with an emulator that shows what a person would see."""

import fcntl
import os
import re
import struct
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Condition, Thread
from typing import TextIO

import pyte

OURS = re.compile(rb"\r\n|\r\x1b\[J|\x1b\[\?7h\r|\x1b\[(?:[0-9]*A|\?25[lh]|\?7l|[0-9;]*m)")
"""What we may tell a terminal to do."""
FOREIGN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


class Terminal:
    def __init__(self, columns: int, rows: int) -> None:
        self.master, slave = os.openpty()
        self.stream: TextIO = os.fdopen(slave, "w", encoding="utf-8")
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000)
        self._feed = pyte.ByteStream(self.screen)
        self.raw = b""
        self._lock = Condition()
        self._size(columns, rows)
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):
            while data := os.read(self.master, 65536):
                with self._lock:
                    self.raw += data
                    self._feed.feed(data)
                    self._lock.notify_all()

    def _size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.stream.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns: int, rows: int, *, reflows: bool = False) -> None:
        """`reflows`: lines that do not fit are folded and not cut, and the cursor stays at its place in the text."""
        with self._lock:
            self._size(columns, rows)
            if not reflows:
                self.screen.resize(rows, columns)
                return
            before, after = self._lines()[: self.screen.cursor.y], self._lines()[self.screen.cursor.y :]
            hidden = self.screen.cursor.hidden
            self.screen = pyte.HistoryScreen(columns, rows, history=10_000)
            self._feed = pyte.ByteStream(self.screen)
            self._feed.feed("".join(f"{line}\r\n" for line in before).encode())
            place = self.screen.cursor.y
            self._feed.feed("\r\n".join(after).rstrip().encode())
            self.screen.cursor.y, self.screen.cursor.x, self.screen.cursor.hidden = place, 0, hidden

    def _lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    @property
    def shown(self) -> str:
        """All that can be read, with what has scrolled away."""
        with self._lock:
            gone = ["".join(row[x].data for x in range(self.screen.columns)) for row in self.screen.history.top]
            return "\n".join(line.rstrip() for line in [*gone, *self.screen.display]).rstrip()

    @property
    def cursor_visible(self) -> bool:
        with self._lock:
            return not self.screen.cursor.hidden

    def until(self, holds: Callable[[str], bool], patience: float = 60) -> None:
        """Wait until what is shown is as wanted. To read a screen takes long, so it is read when it has changed."""
        end, read = time.monotonic() + patience, len(self.raw)
        while not holds(self.shown):
            assert time.monotonic() < end, self.shown
            with self._lock:
                if len(self.raw) == read:
                    self._lock.wait(0.1)
                read = len(self.raw)

    def drained(self) -> None:
        """Wait until all that was written has arrived."""
        mark = f"<{len(self.raw)}>"
        self.stream.write(mark)
        self.stream.flush()
        self.until(lambda _: self.raw.endswith(mark.encode()))
        self.raw = self.raw[: -len(mark)]

    def hang_up(self) -> None:
        os.close(self.master)

    def close(self) -> None:
        with suppress(OSError):
            self.stream.close()
        self._reader.join(5)
        with suppress(OSError):
            self.hang_up()


@contextmanager
def terminal(columns: int = 80, rows: int = 24) -> Iterator[Terminal]:
    made = Terminal(columns, rows)
    try:
        yield made
    finally:
        made.close()


def unexpected_sequences(raw: bytes) -> list[str]:
    """What would do something to a terminal and is not ours."""
    return FOREIGN.findall(OURS.sub(b"", raw).decode("utf-8", "surrogateescape"))


def terminal_text(text: str, columns: int, rows: int) -> str:
    """What a terminal shows of plain text."""
    screen = pyte.HistoryScreen(columns, rows, history=10_000)
    pyte.Stream(screen).feed(text.replace("\n", "\r\n"))
    gone = ["".join(row[x].data for x in range(columns)) for row in screen.history.top]
    return "\n".join(line.rstrip() for line in [*gone, *screen.display]).rstrip()
