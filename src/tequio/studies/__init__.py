"""Studies: several runs that answer one question, with the published numbers to compare with."""
