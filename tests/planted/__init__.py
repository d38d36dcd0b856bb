"""Bugs planted on purpose, and the tests that must notice them.

A test is worth what it catches. Each package lists realistic bugs, many of them made by somebody
before, in ``tests/<package>/planted.py``; each names the test that must fail. ``python -m
tests.planted`` plants them one at a time, in copies, and says which nobody noticed.
"""
