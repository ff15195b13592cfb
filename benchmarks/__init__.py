"""Comparisons with peers, run alternately in one process: ``python -m benchmarks.NAME``."""
