"""Python tools of the example shop."""
