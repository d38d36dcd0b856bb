"""The source and the sink. What S1, S2 … stand for is said in ``tests/invariants.md``."""
