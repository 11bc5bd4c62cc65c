"""Spec coverage: the parts of the specs that no case exercises."""

from agentrun.testing.suite.coverage.collector import CoverageCollector
from agentrun.testing.suite.coverage.report import Coverage

__all__ = ["Coverage", "CoverageCollector"]
