"""What no command shows, wherever it comes from: the credentials of its environment."""

from __future__ import annotations

import os
from functools import cache

from agentrun.net.environment import find_credentials
from agentrun.redactor import Redactor


@cache
def known() -> Redactor:
    """Knows them by value."""
    return Redactor(find_credentials(os.environ))
