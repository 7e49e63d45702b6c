from __future__ import annotations

import os
from pathlib import Path

from ottla.spark.exactly_once.places import Place


def test_places_are_taken_once_and_free_again(tmp_path: Path) -> None:
    one, two = Place.take(tmp_path), Place.take(tmp_path)
    assert one.name != two.name
    assert one.name.split("-")[0] == two.name.split("-")[0]
    one.leave()
    assert Place.take(tmp_path).name == one.name


def test_numbers_begin_again_with_each_batch_but_never_within_one(tmp_path: Path) -> None:
    place = Place.take(tmp_path)
    assert [place.next_number("a", 1), place.next_number("a", 1), place.next_number("b", 1)] == [0, 1, 0]
    assert place.next_number("a", 2) == 0
    place.leave()
    after = Place.take(tmp_path)  # of a worker that was killed
    assert after.name == place.name
    assert [after.next_number("a", 2), after.next_number("b", 1), after.next_number("c", 1)] == [1, 1, 0]


def test_what_is_forgotten_is_not_used_again(tmp_path: Path) -> None:
    place = Place.take(tmp_path)
    used = [place.next_number("first", 5) for _ in range(3)]
    for scope in range(100):
        place.next_number(f"other{scope}", 1)
    assert place.next_number("first", 5) not in used
    (file,) = tmp_path.glob("*.place")
    assert file.stat().st_size < os.sysconf("SC_PAGE_SIZE")


def test_a_damaged_place_is_left_alone(tmp_path: Path) -> None:
    place = Place.take(tmp_path)
    place.leave()
    (file,) = tmp_path.glob("*.place")
    file.write_bytes(b'{"a"')
    assert Place.take(tmp_path).name != place.name


def test_a_place_whose_file_was_deleted_is_not_given_to_others(tmp_path: Path) -> None:
    place = Place.take(tmp_path)
    assert place.next_number("a", 1) == 0
    (file,) = tmp_path.glob("*.place")
    file.unlink()
    other = Place.take(tmp_path)
    assert (other.name != place.name, other.next_number("a", 1), place.next_number("a", 1)) == (True, 0, 1)


def test_without_a_directory_a_place_is_random(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    one, two = Place.take(file / "below"), Place.take(file / "below")
    assert one.name != two.name
    assert [one.next_number("a", 1), one.next_number("a", 1)] == [0, 1]
