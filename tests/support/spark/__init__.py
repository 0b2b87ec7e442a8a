"""Histories and exports for the pipelines, right and broken on purpose, and Spark itself."""
