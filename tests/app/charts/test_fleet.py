"""Tests of the map of all sampled GPUs."""

from sawtooth.app.charts.fleet import without_folder


def test_the_common_folder_of_all_files_is_not_part_of_a_label() -> None:
    assert without_folder(["job/nvml_1.jsonl GPU 0", "job/nvml_0.jsonl GPU 0"]) == ["nvml_1.jsonl GPU 0", "nvml_0.jsonl GPU 0"]
    assert without_folder(["a/nvml.jsonl GPU 0", "b/nvml.jsonl GPU 0"]) == ["a/nvml.jsonl GPU 0", "b/nvml.jsonl GPU 0"]
