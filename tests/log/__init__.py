"""Partition logs on disk. What L1, L2 … stand for is said in ``tests/invariants.md``."""
