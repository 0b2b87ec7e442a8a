"""Replicated logs for tests: in memory, as replicas in this process, and as exports."""
