"""Histories of client calls, right and broken on purpose, for the tests of their checks."""
