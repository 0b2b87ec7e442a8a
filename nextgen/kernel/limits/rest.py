"""Limits of the Admin REST. Each has its unit and its reason."""

from __future__ import annotations

REST_BODY_BYTES_MAX = 64 * 1024
"""Body of a request to the Admin REST: all policies of a namespace, or properties, four times over.
What is stored has tighter limits of its own."""

REST_QUERY_PARAMETERS_MAX = 64
"""Parameters of one query: the call with most has a dozen."""
