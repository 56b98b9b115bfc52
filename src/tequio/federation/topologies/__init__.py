"""Topologies besides client-server: aggregators in between, and peers without a coordinator."""
