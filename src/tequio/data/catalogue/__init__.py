"""Datasets by name: the embedded sets of scikit-learn, known public sets, files of your own, and a synthetic one."""
