"""The rules of the audit, by subject: places, commands, names, slots, owners, the cluster's log.
Pure: facts in, findings out. ``audit.transform`` and ``audit.job`` call them.
"""
