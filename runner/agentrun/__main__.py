"""The console script `agentrun`, and `python -m agentrun`.

Until the command handles Ctrl-C, it ends the process at once. `KeyboardInterrupt` would print a traceback.
"""

from __future__ import annotations

import os
import signal

EARLY_INTERRUPT_EXIT = 130
"""The exit code of `cancelled`. The table of error codes is not imported yet."""

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # otherwise it is ignored, or another program's
    signal.signal(signal.SIGINT, lambda *_: os._exit(EARLY_INTERRUPT_EXIT))

from agentrun.cli import main  # noqa: E402  # after the handler is set

if __name__ == "__main__":
    main()
