"""The rebalance protocol, both sides: coordinator and member. Pure: requests and now_ms in."""
