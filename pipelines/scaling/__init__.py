"""Scalable topics as they would be: their traffic over the hashes, and layouts that follow
``nextgen.kernel.scalable.auto_scale``. No Spark, no I/O. Jobs that rehearse or make loads call it.
"""
