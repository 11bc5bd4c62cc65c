"""A project with one cassette, for the tests that need cases beside it."""

from ..cli.conftest import desk, recorded_desk  # noqa: F401  # fixtures
