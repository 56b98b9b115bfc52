"""What hostile parties do: to their rows, to their updates, and together."""
