"""The format of an export: the columns of ``Event``, Parquet files, the manifest.

Columns only grow, and rows give back the events that they were made of.
The other packages of ``nextgen.export`` and the pipelines call it.
"""
