"""How exactly a request must match the recorded one. The keys of each tier are made in `match.py`.

Every command with the option and every start of pytest imports this module, so it imports nothing.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

MatchTier: TypeAlias = Literal["exact", "normalised"]
"""From the most to the least exact: equal, or equal except for the volatile fields of the spec."""
MATCH_TIERS: tuple[MatchTier, ...] = get_args(MatchTier)
DEFAULT_TIER: MatchTier = "normalised"
"""The least exact tier that is accepted if nothing else is requested."""
