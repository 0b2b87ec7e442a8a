"""The services of discovery, a package for each, and its counters and reports.
They use ports and rules, no sockets. Adapters and ``bootstrap`` call them.
"""
