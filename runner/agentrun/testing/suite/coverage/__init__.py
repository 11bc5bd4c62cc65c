"""Spec coverage: the parts of the specs that no case exercises.

spec_parts  the parts of a spec that can be exercised, with their places
collector   what the journals of a suite exercised
report      the numbers and the missing parts
"""

from agentrun.testing.suite.coverage.collector import CoverageCollector
from agentrun.testing.suite.coverage.report import Coverage

__all__ = ["Coverage", "CoverageCollector"]
