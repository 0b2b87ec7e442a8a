"""Makes one fault at a time happen, and undoes it: to own nodes, through the API, by hooks.
`targets` finds whom it is about, `happened` says what came of it.
Only nextgen.harness.chaos calls it.
"""
