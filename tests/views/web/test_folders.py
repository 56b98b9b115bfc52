"""No address leads out of the folder of runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tequio.errors import RunError
from tequio.views.web.kit import run_folder

PIECES = st.sampled_from(["..", ".", "", "/", "a", "secret", "%2e%2e", "..\\..", "\0", "~", "C:", "\u2025", "a/..",
                          "....//", "sweep"])


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    for name in ("secret", "runs/a", "runs/sweep/cell"):
        (home / name).mkdir(parents=True)
    (home / "secret" / "config.toml").write_text('name = "classified"')
    (home / "runs" / "outside").symlink_to(home / "secret")
    (home / "runs" / "inside").symlink_to(home / "runs" / "a")
    return home / "runs"


@given(st.lists(PIECES, max_size=6), st.sampled_from(["/", "\\", ""]))
def test_a_name_means_a_folder_inside_or_none(root, pieces, joint):
    try:
        path = run_folder(root, joint.join(pieces))
    except RunError:
        return
    assert path.resolve().is_relative_to(root)
    assert path.resolve() != root


@pytest.mark.parametrize("name", ["a", "sweep/cell", "inside"])
def test_runs_and_cells_are_found(root, name):
    assert run_folder(root, name).resolve().is_relative_to(root)


@pytest.mark.parametrize("name", ["outside", "../secret", "a/../../secret", "/etc", "", ".", "nothing", "a//", "a\0b"])
def test_anything_else_is_no_run(root, name):
    with pytest.raises(RunError, match="there is no run"):
        run_folder(root, name)


@pytest.mark.parametrize("page", ["run", "tree", "drawing", "events"])
@pytest.mark.parametrize("name", ["../secret", "..%2fsecret", "%2e%2e/secret", "%2e%2e%2fsecret", "..%5csecret", "%00",
                                  "trees/..%2f..%2fsecret", "%2fetc", "trees%00", "." * 5000])
def test_pages_refuse_it_too(client, runs, page, name):
    (runs.parent / "secret").mkdir()
    (runs.parent / "secret" / "config.toml").write_text('name = "classified"')
    answer = client.get(f"/{page}/{name}")
    assert answer.status_code in (403, 404)
    assert "classified" not in answer.text


@pytest.mark.parametrize("address", ["/compare?run=../secret", "/partition?run=../secret", "/new?like=../secret"])
def test_so_do_names_in_a_query(client, runs, address):
    assert client.get(address).status_code == 404


@pytest.mark.parametrize("name", ["../app.py", "..%2fapp.py", "%2e%2e/app.py", "..%5capp.py"])
def test_static_files_are_those_of_one_folder(client, name):
    answer = client.get(f"/static/{name}")
    assert answer.status_code == 404
    assert "Starlette" not in answer.text
