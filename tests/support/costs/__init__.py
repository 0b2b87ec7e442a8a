"""The most expensive requests within the limits, and what they cost a process.

Tests of bad input and of bounds on processor time and memory use it."""
