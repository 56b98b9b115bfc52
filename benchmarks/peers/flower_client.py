"""The Flower client of ``run_flower.py``, in a module of its own.

Ray's actors import it by name and keep it, so data, model and loaded libraries are made once in each actor. Functions
of a script would be pickled by value for every single message, and their caches would be lost with them.
"""

from __future__ import annotations

from functools import cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from problems import PROBLEMS
from torch_models import make_model, make_tensors, train_one_epoch

torch.set_num_threads(1)

app = ClientApp()
cached_tensors = cache(make_tensors)
cached_model = cache(make_model)


@app.train()
def train(message: Message, context: Context) -> Message:
    """One party's local training."""
    problem = PROBLEMS[str(message.content["config"]["case"])]
    features, labels = cached_tensors(problem)[int(context.node_config["partition-id"])]
    model = cached_model(problem)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train_one_epoch(model, features, labels, problem)
    answer = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": problem.rows})}
    return Message(content=RecordDict(answer), reply_to=message)
