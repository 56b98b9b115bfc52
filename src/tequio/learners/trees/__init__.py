"""Decision trees as plain data: arrays that print, draw, travel and explain themselves."""
