"""The format of an export: the columns of ``Event``, Parquet files, the manifest.

Columns are only added, and rows can be turned back into the events that they were made of.
The other packages of ``nextgen.export`` and the pipelines call it.
"""
