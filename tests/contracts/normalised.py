"""A learner with batch normalisation, for the battery."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn


def build(inputs, outputs):
    return nn.Sequential(OrderedDict(flatten=nn.Flatten(), hidden=nn.Linear(inputs, 4), norm=nn.BatchNorm1d(4),
                                     activation=nn.ReLU(), output=nn.Linear(4, outputs)))
