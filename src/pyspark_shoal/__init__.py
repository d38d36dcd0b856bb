"""Lets Spark find ``format("shoal")`` without a call to ``register``.

Spark imports every top-level package called ``pyspark_*`` when it looks a format up, in every
application of the environment: this file must stay light.
"""

from shoal.spark.source import ShoalDataSource as DefaultSource

__all__ = ["DefaultSource"]
