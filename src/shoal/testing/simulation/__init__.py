"""Whole groups, clients and producers from one seed, in virtual time, with faults."""
