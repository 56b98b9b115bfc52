"""How the pages of docs/reference are written."""
