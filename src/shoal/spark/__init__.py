"""The Spark data source, sink and analytics (extra: spark)."""
