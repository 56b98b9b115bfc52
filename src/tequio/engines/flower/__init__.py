"""A Flower federation as the link between a coordinator and its parties."""
