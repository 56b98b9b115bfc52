"""Pictures of centroids."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.errors import ConfigError
from tequio.views.clusters import draw_centroids, save_centroids


def test_centroid_k_of_one_clustering_stands_above_centroid_k_of_the_other():
    upper, lower = np.arange(12.0).reshape(3, 4), -np.arange(12.0).reshape(3, 4)
    figure = draw_centroids({"federated": upper, "centralised": lower}, title="digits")
    drawn = [axes.images[0].get_array() for axes in figure.axes]
    assert [image.shape for image in drawn] == [(2, 2)] * 6
    np.testing.assert_array_equal(np.array(drawn[1]), [[4, 5], [6, 7]])
    np.testing.assert_array_equal(np.array(drawn[4]), [[-4, -5], [-6, -7]])
    assert [axes.get_ylabel() for axes in figure.axes] == ["federated", "", "", "centralised", "", ""]


def test_the_picture_is_a_png_in_a_folder_made_on_the_way(tmp_path):
    save_centroids({"only": np.eye(4)}, tmp_path / "new" / "centroids.png")
    assert (tmp_path / "new" / "centroids.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_centroids_that_are_no_square_images_are_refused():
    with pytest.raises(ConfigError, match="centroids of 5 values are no square images"):
        draw_centroids({"iris": np.zeros((3, 5))})
