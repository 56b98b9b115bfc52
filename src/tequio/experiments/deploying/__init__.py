"""Real federations: coordinator and party processes, Flower apps, and the models that go into use."""
