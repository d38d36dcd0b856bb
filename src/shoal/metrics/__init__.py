"""Metrics in the formats that Prometheus reads, and the small server that hands them out.

``exposition`` writes them, ``server`` answers scrapes. What is measured is decided by whoever
measures: the broker, and ``shoal.fleet`` for a whole cluster.
"""
