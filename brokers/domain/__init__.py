"""A broker's rules, pure: its assignments, its session, positions, storage policies, refusals.
Nothing here does I/O or reads a clock. Every other layer of the broker may call it.
"""
