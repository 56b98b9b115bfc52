"""The dashboard in a browser: runs, live curves, comparisons, partitions, trees, and a form that starts runs."""
