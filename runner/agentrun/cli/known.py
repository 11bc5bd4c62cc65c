"""What no command shows, wherever it comes from: the credentials of its environment."""

from __future__ import annotations

import os
from functools import cache

from agentrun.net.credentials import credentials
from agentrun.redact import Redactor


@cache
def known() -> Redactor:
    """Knows them by value."""
    return Redactor(credentials(os.environ))
