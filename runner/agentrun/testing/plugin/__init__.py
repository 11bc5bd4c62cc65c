"""The implementation of the pytest plugin."""
