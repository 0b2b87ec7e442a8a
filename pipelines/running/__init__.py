"""How a job runs: options, JVM, Spark session, progress, the folder it writes, its summary.
Output appears whole or not at all, and rows must add up. All jobs call it.
"""
