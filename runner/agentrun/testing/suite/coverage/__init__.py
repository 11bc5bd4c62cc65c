"""Spec coverage: which parts of the specs under test no case exercises.

branching   templates with more than one way through them
kin         an agent and its sub-agents
codes       the codes that an agent can meet
parts       all that can be exercised, with its place
exercised   what journals show
covering    collects it over a suite, and compares
report      the numbers, and what is missing
"""

from agentrun.testing.suite.coverage.collector import CoverageCollector
from agentrun.testing.suite.coverage.report import Coverage

__all__ = ["Coverage", "CoverageCollector"]
