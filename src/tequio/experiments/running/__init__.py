"""One run: what it works on, its rounds, its measurements, and the folder that holds its results."""
