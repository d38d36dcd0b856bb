"""One module per API: from a request to a response."""
