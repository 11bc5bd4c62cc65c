"""Fixtures of a project with one cassette."""

from ..cli.conftest import desk, recorded_desk  # noqa: F401  # fixtures
