"""Who a client is: checks of tokens, passwords and certificates (ADR 0146).

Listeners of discovery and brokers call ``Authenticator``; the command line makes keys and tokens.
"""
