"""The terminal chat, a client of the local port."""
