"""The stream by which a process joins the cluster, and what the process learns from it.

The view takes updates in any order and never unlearns.
Components, the bulk loader, the demo and the rest of the client library call it.
"""
