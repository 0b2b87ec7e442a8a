"""Jobs of a chaos run, which write every request, answer, message and watch into a history.
A request is on disk before it leaves, so a killed job hides nothing.
nextgen.harness.load.job_kinds and chaos call it.
"""
