"""Makes one fault at a time and undoes it: on own nodes, through the API, or by hooks.
`targets` chooses the node, `happened` holds the result.
Only nextgen.harness.chaos calls it.
"""
