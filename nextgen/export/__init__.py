"""The event log as Parquet files: the format, the stores, the writer, the checks.

The manifest names complete files only. Readers ignore files that it does not name.
The command line runs and checks exports; the pipelines read them.
"""
