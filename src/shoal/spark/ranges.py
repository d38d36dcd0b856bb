"""Offset ranges, Spark offsets and tasks. Pure: values in, values out."""
