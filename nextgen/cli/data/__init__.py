"""`events`, `watch`, `export`, `bulk` and `pipeline`: metadata out of a cluster and into it.
They hold options and output; nextgen.client, nextgen.export, nextgen.bulk and pipelines work.
Only nextgen.main calls it.
"""
