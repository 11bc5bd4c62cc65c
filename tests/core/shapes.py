"""Runs of many shapes, by name: what every law of the core must hold for."""

from . import shapes_calls, shapes_run
from .shaping import SHAPES

__all__ = ["SHAPES", "shapes_calls", "shapes_run"]
