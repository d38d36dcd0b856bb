"""Kafka clients over one asyncio engine: consumer, producer, admin.

The path of a call: a face (``consumer.py``, ``async_consumer.py``, ``producer.py``, ``admin.py``)
hands a coroutine to ``engine.py``, which runs it on a background thread; the coroutine decides
with pure code (``shoal.group.member``, ``shoal.records``) and talks through ``cluster.py``, which
owns one ``connection.py`` per broker. Rule: behaviour is written once, below the faces.
"""
