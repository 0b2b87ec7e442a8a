"""Stores of an export's files, and the names of these: a local directory, an object store.

Published files survive a power cut. A second exporter is refused.
The other packages of ``nextgen.export`` and the pipelines call it.
"""
