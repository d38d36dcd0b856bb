"""Opening a log after a crash: where do the good bytes end? Pure: bytes in, verdict out."""
