"""The lab: how groups were rebalanced, then and now, in virtual time."""
