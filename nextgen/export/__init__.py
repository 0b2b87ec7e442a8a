"""The event log as Parquet files: the format, the stores, the writer, the checks.

The manifest names whole files only; a file that it does not name does not count.
The command line runs and checks exports; the pipelines read them.
"""
