"""One module for each promise that a history is checked for, and the models that they share.
Pure: it reads a history and its log, returns findings, and never stops at the first.
Only nextgen.harness.history.check and tests call it.
"""
