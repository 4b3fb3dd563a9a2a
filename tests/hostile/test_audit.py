"""Faults that an audit found, and the tests that keep them away: each is there."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FAULTS = {
    "a lone surrogate fails the requests of others": [
        "serving/test_changes_under_load.py::test_a_lone_surrogate_fails_its_own_request_only",
        "serving/test_batching.py::test_a_job_that_fails_in_a_batch_is_retried_alone_and_only_it_fails",
    ],
    "predictions fail while labels change": [
        "serving/test_changes_under_load.py::test_every_prediction_is_consistent_with_one_revision",
    ],
    "changes need no token where reading does": [
        "serving/test_middleware.py::test_a_read_token_alone_switches_changes_off",
    ],
    "a run folder names code that is run": [
        "hostile/test_foreign_run.py::test_loading_a_run_imports_no_code_that_it_names",
        "hostile/test_foreign_run.py::test_continuing_a_run_imports_no_code_of_its_settings",
    ],
    "a bad text is stored and the run is refused for ever": [
        "store/test_change_store.py::test_a_refused_change_leaves_no_trace",
        "hostile/test_fuzz_inputs.py::test_files_of_changes",
        "cli/test_repair_and_backup.py::test_a_damaged_store_is_named_and_repaired",
    ],
    "a store that is cut or older brings retired labels back": [
        "store/test_damage.py::test_a_file_cut_anywhere_is_noticed",
        "store/test_damage.py::test_an_older_copy_is_noticed",
        "store/test_damage.py::test_a_lost_wal_is_noticed",
    ],
    "the watcher ends with an unexpected error": [
        "serving/test_engine.py::"
        "test_a_load_that_fails_unexpectedly_keeps_the_old_version_and_the_watcher",
    ],
    "a new ensemble is not picked up": [
        "serving/test_engine.py::test_a_newly_fitted_ensemble_is_picked_up",
    ],
    "reads wait for a writer": [
        "serving/test_changes_under_load.py::"
        "test_reads_do_not_wait_for_a_writer_that_holds_the_lock",
        "store/test_change_store.py::"
        "test_reads_do_not_wait_for_a_writer_and_a_writer_waits_for_a_while",
    ],
    "workers outlive their parent": [
        "serving/test_hostile_processes.py::test_workers_end_with_a_parent_that_is_killed",
    ],
    "an encoder's code is run": [
        "hostile/test_encoder_folder.py::test_code_of_an_encoder_is_not_run",
        "hostile/test_encoder_folder.py::test_code_of_a_tokenizer_is_not_run",
    ],
    "control characters reach the terminal": [
        "hostile/test_terminal.py::test_labels_and_examples_are_listed_escaped",
        "hostile/test_terminal.py::test_only_one_file_of_the_command_line_prints",
    ],
    "two trainings write to one folder": [
        "hostile/test_same_out.py::test_of_two_that_start_at_the_same_time_one_is_refused",
    ],
    "a full disk or a decompression bomb is a traceback": [
        "hostile/test_full_disk.py::test_a_full_disk_is_a_sentence_and_the_run_goes_on",
        "hostile/test_bombs.py::test_gzip_data_that_grows_without_end_is_refused",
    ],
    "HEAD is not answered": ["serving/test_app.py::test_head_is_answered_as_get_is"],
    "a damaged store or a deleted run is ready": [
        "serving/test_app.py::test_a_damaged_store_refuses_changes_and_predictions_go_on",
        "serving/test_app.py::test_a_run_folder_that_is_gone_is_not_ready_and_predictions_go_on",
    ],
    "a live store is copied file by file": [
        "test_predictor_changes.py::test_a_copy_is_of_one_moment_while_others_change_the_run",
        "serving/test_hostile_restore.py::test_backup_and_restore_while_clients_predict_and_change",
    ],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_tests_against_it_are_there(fault):
    for place in FAULTS[fault]:
        file, _, name = place.partition("::")
        tree = ast.parse((TESTS / file).read_text("utf-8"))
        found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name in found, f"{place} is gone; name the test that took its place"
