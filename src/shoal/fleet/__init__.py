"""What happened to consumer groups, and what is wrong with them: without Spark, without a terminal.

Two ways of knowing a group meet here. Its coordinator's records in ``__consumer_offsets`` say what
it went through: ``decode`` and ``group_records`` read them, ``fold`` puts generations together,
``causes`` explains what lies between two, ``lag`` says how far behind it was, ``report`` sums up a
fleet, ``recorder`` keeps what the cluster forgets. Looks from outside say what it is now:
``snapshots`` takes them and tells what changed, ``diagnosis`` says what is wrong.
"""
