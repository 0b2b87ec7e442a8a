"""The rules of discovery: cached answers, absent names, pages, windows, scopes of watches.
Pure: no I/O, time comes in. Every other layer of discovery may call it.
"""
