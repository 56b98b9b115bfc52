"""Random numbers that privacy rests on: coins of a stream cipher, exact noise in whole numbers, and the grid for it."""
