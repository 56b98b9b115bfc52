"""Routers: which of a party's models answers a row, its own or the global one."""
