"""Measure every variant of a language model for speed, energy and quality, and choose one to deploy."""

__version__ = "0.1.0"
