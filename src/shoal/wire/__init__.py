"""The bytes of requests and responses. Pure: bytes in, values out."""
