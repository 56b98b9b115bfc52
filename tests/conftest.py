"""Puts this folder on the path: tests of several layers share what lies here."""

from __future__ import annotations

import itertools
import os
import signal

import pytest

_NUMBERS = itertools.count()

# One compute thread per process, as in runs: libraries read this when they are loaded. Threads of several processes
# that wait for each other on few cores can be slower than one by far.
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))

# gRPC reads this when it is loaded, which some test may do before tequio does.
os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-RSA-AES256-GCM-SHA384"

# A shell without job control starts what runs in the background deaf to Ctrl-C, and Python leaves it so.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _ledgers_of_its_own(monkeypatch, tmp_path_factory):
    """What a test spends on rows is spent in that test alone."""
    monkeypatch.setenv("TEQUIO_STATE", str(tmp_path_factory.getbasetemp() / f"state-{next(_NUMBERS)}"))
