"""The process shell that every program runs in; it knows no rules of the cluster.

Its packages re-export nothing, so that a program pays only for the modules that it imports.
Components, ``nextgen.pulsar``, the client library, tools and pipelines may import it.
"""
