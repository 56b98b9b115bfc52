"""Puts this folder on the path: tests of several layers share what lies here."""

from __future__ import annotations

import signal

# A shell without job control starts what runs in the background deaf to Ctrl-C, and Python leaves it so.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
