"""Found by pytest through the entry point: the fixtures of shoal.testing."""
