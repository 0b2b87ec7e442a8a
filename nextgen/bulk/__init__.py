"""Bulk loading: a folder of load files, and the loader that creates its topics in the shards.

Topics that an interrupted load has created stay. A second run continues, and creates none twice.
The command line and the pipelines call it.
"""
