"""Real peers for tests and benchmarks: Apache Kafka, its tools, Spark's connector, other clients.

Everything is fetched once by the language's own package client into a cache outside the work
tree (``SHOAL_PEERS_CACHE``, default ``~/.cache/shoal/peers``) and reused offline. What cannot be
had raises ``PeerMissingError`` with one sentence; ``need()`` turns that into a skip whose reason is
counted and printed at the end of the run.
"""

from tests.peers.cache import PeerMissingError, need

__all__ = ["PeerMissingError", "need"]
