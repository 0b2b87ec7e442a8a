"""The tables of a replica's view, and the fold of group 0's log into them.
The fold follows the domain's rules. ``adapters.stored_view`` and ``recover`` call it.
"""
