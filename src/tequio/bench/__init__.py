"""`tequio bench`: this engine against a plain PyTorch loop, and against peers, in one run.

Absolute times mean nothing on a shared machine. What counts is the ratio of the best of several repeats, taken in turn.
"""
