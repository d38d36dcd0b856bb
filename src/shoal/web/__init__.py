"""The dashboard: the consumer groups of any Kafka cluster, live, in a browser.

Rule: the server speaks Kafka as a client and HTTP to one kind of page, its own. What may be asked
stands in one table (``application``), and whoever asks passes one gate (``gate``).
"""
