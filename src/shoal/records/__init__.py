"""The bytes of record batches: format v2, compression, columns. Pure: bytes in, values out."""
