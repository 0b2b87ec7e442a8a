"""PySpark jobs over the exported event log, one folder each."""
