"""One module per API of the protocol: request and response, every version at once."""
