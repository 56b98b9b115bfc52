"""The network engine: parties in other organisations dial in over mutual TLS and keep their data and their states."""
