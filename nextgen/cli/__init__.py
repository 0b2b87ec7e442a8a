"""The ``nextgen`` command: a local cluster, and everything a person asks a cluster for."""
