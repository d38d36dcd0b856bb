"""What happened to consumer groups, from the records of ``__consumer_offsets``."""
