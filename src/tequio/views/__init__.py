"""Views: tables, plots and progress, for a terminal and for a notebook."""
