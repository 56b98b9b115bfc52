"""What an algorithm sees: parties, tasks, payloads, and the parts it is composed of."""
