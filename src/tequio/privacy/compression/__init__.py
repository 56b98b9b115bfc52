"""Stages that make updates smaller on their way to the coordinator."""
