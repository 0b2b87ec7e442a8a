"""Where the files of an export are and what they are called: a directory, an object store.

What a store has published survives a power cut; a second exporter is refused.
The other packages of ``nextgen.export`` and the pipelines call it.
"""
