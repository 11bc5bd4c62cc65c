"""Test ids are the same in every process, because parallel workers must collect the same ids.

A name made of a set's text or of the time of day differs from one worker to the next, and the whole run is lost, but
only sometimes. Every run with workers makes this comparison: each worker has its own hash seed, and xdist compares what
they have collected. This test adds a run without workers, and the long tests.
"""

import os
import subprocess
import sys

import pytest


@pytest.mark.long
def test_test_ids_do_not_depend_on_the_process(request: pytest.FixtureRequest) -> None:
    root = request.config.rootpath
    here = {item.nodeid for item in request.session.items}
    # To rewrite asserts is half of the work, and changes no name.
    only_names = ["--collect-only", "-q", "--assert=plain"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *only_names, "-m", "long or not long", "-p", "no:xdist", "tests"],
        cwd=root,
        env=os.environ | {"PYTHONHASHSEED": "4321"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert here - set(done.stdout.splitlines()) == set()
