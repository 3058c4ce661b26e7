"""Tests of what the server does about garbage collection."""

import gc

from sawtooth.app.server.process import keep_modules_from_collection


def test_objects_that_exist_at_the_start_are_not_collected_again() -> None:
    at_the_start = [object()]
    try:
        keep_modules_from_collection()
        later = [object()]
        visited = {id(item) for item in gc.get_objects()}
        assert id(at_the_start) not in visited and id(later) in visited
    finally:
        gc.unfreeze()
