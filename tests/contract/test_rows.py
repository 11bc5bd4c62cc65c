"""Every row of the contract about starting a run, policy and approvals, the journal and its events, replay, audit and
resume has a test that goes through the public API or the command line. The codes are in `test_codes.py`."""

from __future__ import annotations

import pytest

from .public_tests import is_public, names_in

START = """
a runtime can be made without any port
    engine/test_begin.py::test_runtime_without_ports_refuses_to_start
a name is registered once, and is not empty
    engine/test_runtime.py::test_registry_refuses_a_duplicate_name
    engine/test_runtime.py::test_registry_refuses_an_empty_name
a handle waits and has a status and an outcome
    engine/test_handle.py::test_status_and_outcome_follow_the_run
a handle cancels, sends and has events
    engine/test_handle.py::test_cancel_during_a_call_is_journaled_and_nothing_follows
    engine/test_handle.py::test_sent_message_is_queued_and_answered
    engine/test_handle.py::test_events_of_a_handle_are_its_journal_records
a runtime has snapshots, cancel, a count of runs
    engine/test_runtime.py::test_snapshot_shows_session_source_package_route_and_cancellation
    engine/test_runtime.py::test_cancel_stops_the_run_and_its_sub_agent
    engine/test_runtime.py::test_run_count_counts_the_started_runs
a runtime has subscriptions and effective packages
    engine/test_runtime.py::test_subscribe_filters_by_scope_and_starts_at_a_cursor
    engine/test_runtime.py::test_effective_package_has_the_output_schema_of_the_request
a text run and a typed run are one path
    engine/test_api.py::test_output_schema_of_the_call_parses_the_answer
the first missing port is named, with the run
    engine/test_begin.py::test_first_missing_port_is_named
the package is resolved, or the default one
    engine/test_runtime.py::test_request_without_a_package_gets_that_of_the_resolver_or_the_default
an output contract with the same id replaces
    engine/test_begin.py::test_output_schema_of_the_request_replaces_only_a_compatible_one
the package is valid, of the agent and unchanged
    engine/test_begin.py::test_package_of_another_agent_is_refused
    engine/test_begin.py::test_package_that_differs_from_its_fingerprint_is_refused
there is a provider, hook, executor and required sink
    engine/test_begin.py::test_missing_provider_hook_executor_or_sink_is_refused
an absent optional sink is skipped and recorded
    engine/test_runtime.py::test_missing_optional_sink_is_skipped_and_recorded
only allow passes at run_start
    engine/test_begin.py::test_run_start_rules_allow_or_refuse_the_run
    engine/test_begin.py::test_any_ruling_but_allow_refuses_the_start
a duplicate run id is refused
    engine/test_begin.py::test_duplicate_run_id_is_refused_and_the_journal_unchanged
accepted means journaled
    engine/test_begin.py::test_accepted_run_has_written_run_started
    engine/test_begin.py::test_failed_first_write_leaves_no_run_and_no_session_entry
the order of the checks is fixed
    engine/test_begin.py::test_checks_of_a_start_run_in_order
every error of a start has the run
    contract/test_start_errors.py::test_error_of_a_start_in_python_has_the_refused_run
    contract/test_start_errors.py::test_error_of_a_start_as_json_has_the_refused_run
the package is stored, and checked again in the loop
    engine/test_begin.py::test_package_is_stored_with_the_run
    engine/test_handle.py::test_package_changed_after_the_start_stops_the_run
attachments are blobs by hash
    engine/test_begin.py::test_attachments_are_part_of_the_input_and_a_missing_one_fails_the_run
    cli/test_live.py::test_attachments_are_recorded_and_a_changed_one_is_a_miss
admission: empty, too long, duplicate, in this order
    engine/test_begin.py::test_message_is_checked_for_empty_then_length_then_duplicate
duplicates are per session, and off by default
    cli/test_session.py::test_dedupe_refuses_a_repeated_message_in_one_session
a rejected input leaves no run
    engine/test_begin.py::test_empty_or_too_long_message_is_refused
    cli/test_store.py::test_refused_run_leaves_no_directory
faults that end the run name the tool and the reason
    engine/test_runtime.py::test_fault_that_ends_the_run_names_the_tool_and_the_reason
    engine/test_runtime.py::test_function_that_ends_the_run_names_the_tool_and_the_reason
    attacks/test_tool_python.py::test_fatal_or_aborted_tool_error_ends_the_run
"""

POLICY = """
every stage and ruling does what it says
    engine/test_policy_matrix.py::test_effect_of_a_ruling_at_each_stage
the default applies to tool calls
    engine/test_policy_matrix.py::test_rule_and_default_give_the_expected_ruling
the most restrictive rule wins in any order
    engine/test_policy_matrix.py::test_the_most_restrictive_wins
    cli/test_policy.py::test_rules_decide_the_call_the_exit_code_and_the_journal
a tool that no rule could allow is a spec error
    contract/test_whole_runs.py::test_tool_that_no_rule_allows_is_a_spec_error
other pairs of stage and ruling are spec errors
    contract/test_whole_runs.py::test_illegal_pairs_of_stage_and_ruling_are_spec_errors
defer suspends with a reason until a time
    cli/test_deferrals.py::test_resume_before_the_time_says_until_when_the_run_waits_and_does_nothing
    cli/test_deferrals.py::test_resume_after_the_time_asks_the_rules_again_and_runs_the_call_once
a person lifts a deferral
    cli/test_deferrals.py::test_person_ends_a_deferral_from_another_terminal
a resume asks the rule again
    cli/test_deferrals.py::test_rule_without_until_is_asked_again_by_every_resume
runs that could go on are listed and resumed
    cli/test_deferrals.py::test_resume_due_continues_what_it_can_and_a_failure_does_not_stop_it
modify is validated and ruled on again
    engine/test_policy_matrix.py::test_modified_arguments_are_recorded_in_the_ruling
    engine/test_policy_matrix.py::test_invalid_arguments_after_modify_are_refused
two modify rules that set one field deny
    engine/test_policy_matrix.py::test_modify_rules_together_with_other_rules
a condition that fails counts against the call
    cli/test_policy.py::test_condition_over_the_iteration_budget_is_named_in_the_ruling
    engine/test_policy_matrix.py::test_rule_and_default_give_the_expected_ruling
conditions see the time
    cli/test_deferrals.py::test_condition_about_the_time_decides
conditions are checked against the tools of a rule
    contract/test_whole_runs.py::test_condition_of_the_wrong_type_is_a_spec_error
a ruling is a fact with rules and reason
    engine/test_policy_matrix.py::test_all_deciding_rules_are_named_with_their_reasons
another policy does not change an old journal
    engine/test_api.py::test_audit_finds_a_changed_policy
    cli/test_resume.py::test_stored_package_is_used_after_the_spec_changed
matching is on parsed arguments
    engine/test_policy_matrix.py::test_matching_is_on_parsed_arguments
names match exactly, and globs where written
    engine/test_policy_matrix.py::test_targets_match_exact_names_and_stars
every answer but approved denies
    engine/test_policy_matrix.py::test_effect_of_a_ruling_at_each_stage
    contract/test_codes.py::test_scripted_run_stops_with_its_code
a timeout is recorded, then denied
    cli/test_approval_prompt.py::test_question_without_an_answer_in_time_is_denied
with no one there the run is suspended
    cli/test_later_approvals.py::test_question_suspends_the_run_and_shows_what_to_type
a run that cannot be resumed has no answer
    cli/test_later_approvals.py::test_run_that_cannot_wait_does_not_suspend
files approve nothing in a live run
    cli/test_live_approvals.py::test_live_call_is_not_approved_without_terminal_despite_approvals_in_files
an answer is bound to its question
    cli/test_later_approvals.py::test_question_with_another_package_is_another_question
    engine/test_handle.py::test_answer_to_another_question_is_refused
the first answer wins
    cli/test_later_approvals.py::test_one_of_two_answers_at_once_wins_and_the_other_is_told
an approval for the session is for that session
    cli/test_later_approvals.py::test_approval_for_the_session_counts_in_that_session_only
a hook before a tool cannot fail open
    contract/test_whole_runs.py::test_hook_before_a_tool_that_fails_denies_the_call
"""

JOURNAL = """
records are numbered and chained
    cli/test_show.py::test_journal_of_the_shipped_case_is_chained
    cli/test_show.py::test_verify_finds_damage_with_the_record_number
the intent is written before the effect
    contract/test_whole_runs.py::test_intent_is_in_the_journal_before_its_effect
    durability/test_crash_points.py::test_run_survives_a_crash_at_every_operation
without its intent an effect does not happen
    contract/test_whole_runs.py::test_effect_whose_intent_cannot_be_written_does_not_happen
    cli/test_store.py::test_run_directory_that_vanishes_stops_the_run_before_the_next_effect
a result that cannot be written poisons the journal
    contract/test_codes.py::test_code_of_another_layer_is_produced
    cli/test_store.py::test_full_disk_stops_the_run_and_it_goes_on_with_space
the outcome is read from the journal
    cli/test_resume.py::test_finished_run_prints_its_outcome_and_exits_with_its_code
nothing follows the terminal record
    engine/test_handle.py::test_send_to_a_finished_run_is_refused
    contract/test_whole_runs.py::test_record_after_the_terminal_one_is_an_error
a terminal record on every path
    engine/test_exit_paths.py::test_invariants_after_a_failure_at_every_port_call
audit compares decisions
    cli/test_show.py::test_audit_reports_the_first_decision_that_differs
events are committed records and deltas
    engine/test_runtime.py::test_every_event_is_journaled_before_it_is_published
    engine/test_handle.py::test_reply_deltas_are_events_and_not_records
subscriptions: all, run, agent, filter, cursor
    engine/test_runtime.py::test_subscribe_filters_by_scope_and_starts_at_a_cursor
    cli/test_events.py::test_events_are_those_of_the_run_the_agent_or_all
a cursor holds across processes
    cli/test_events.py::test_since_continues_after_any_event
a cursor belongs to its scope
    cli/test_events.py::test_cursor_of_another_scope_is_refused
a slow subscriber loses deltas, and is told
    contract/test_whole_runs.py::test_slow_subscriber_loses_deltas_but_no_record_and_gets_a_cursor
subscribers never answer
    cli/test_events.py::test_followers_change_nothing
    engine/test_exit_paths.py::test_failing_listener_changes_neither_result_nor_journal
cancel is idempotent and recorded first
    engine/test_handle.py::test_second_cancel_is_ignored
    engine/test_handle.py::test_cancel_before_the_first_step_sends_no_request
cancel reaches sub-agents
    cli/test_run_input.py::test_cancel_ends_a_run_of_another_process_and_its_sub_agents
"""

REPLAY = """
everything is on the cassette, and nothing is executed
    contract/test_whole_runs.py::test_cassette_has_tools_hooks_approvals_and_sinks_and_a_replay_executes_none
every attempt of a provider is on it
    cli/test_record.py::test_recorded_connection_failures_are_replayed
a case may override approvals
    cli/test_live_approvals.py::test_approvals_of_the_case_are_used_with_recorded_tools
one axis can be live
    cli/test_record.py::test_live_tools_execute_tools_and_replay_the_model
    cli/test_record.py::test_live_model_asks_the_model_and_replays_the_tools
the declared endpoint is matched, not the real one
    cli/test_record.py::test_a_replay_needs_no_network
sub-agents share the cassette and are driven again
    cli/test_sub_agents.py::test_parent_and_sub_agent_share_one_cassette
the fingerprint informs and never gates
    contract/test_whole_runs.py::test_package_that_sends_the_same_requests_replays
no real time passes, and the times are recorded ones
    cli/test_record.py::test_replay_has_the_same_retry_waits_as_the_recording
the run id is that of package, input and cassette
    contract/test_whole_runs.py::test_id_of_a_replay_is_that_of_its_package_input_and_cassette
replays are the same every time
    cli/test_run.py::test_replay_writes_the_same_journal_every_time
sensitive values are replaced everywhere
    attacks/test_cassette_matching.py::test_value_found_only_in_a_later_result_is_redacted_everywhere
known secrets are never written
    attacks/test_cassette_secrets.py::test_record_live_and_replay_leak_no_secret
rewritten arguments are the key, and defaults are not
    contract/test_whole_runs.py::test_rewritten_arguments_are_on_the_cassette
    engine/test_completed_arguments.py::test_tool_hook_and_person_get_defaults_and_the_cassette_has_none
unused interactions follow from the first difference
    cli/test_cassette_audit.py::test_changed_budget_is_named_as_the_reason_for_unused_interactions
a replayed outcome says so
    contract/test_whole_runs.py::test_id_of_a_replay_is_that_of_its_package_input_and_cassette
the canonical form has no times, ids and hashes
    contract/test_whole_runs.py::test_snapshot_has_no_times_ids_and_hashes
    engine/test_api.py::test_real_and_step_clock_give_the_same_canonical_journal
it has no recoveries
    durability/test_killed_runs.py::test_killed_run_ends_like_an_undisturbed_one
a snapshot has one rounded total
    cli/test_suite_snapshot_forms.py::test_small_change_of_usage_does_not_change_the_snapshot
audit calls nothing
    cli/test_show.py::test_audit_of_a_run_and_its_sub_agents_finds_the_same_decisions
resume names the lost work
    cli/test_resume.py::test_call_that_may_run_once_is_not_run_again_and_the_ways_on_are_shown
it continues with the stored package
    cli/test_resume.py::test_stored_package_is_used_after_the_spec_changed
another package is recorded
    cli/test_resume.py::test_other_package_is_recorded
derived views are rebuilt
    contract/test_whole_runs.py::test_index_that_is_damaged_or_lost_is_made_again
the lock of a crashed owner is free
    cli/test_later_approvals.py::test_approval_after_the_owner_was_killed
a paused owner is fenced out
    contract/test_whole_runs.py::test_owner_that_wakes_up_without_its_lock_is_fenced_out
a busy session is refused at once, across processes
    cli/test_session.py::test_session_in_use_is_busy_until_its_process_ends
"""

SECTIONS = {"start": START, "policy": POLICY, "journal": JOURNAL, "replay": REPLAY}


def rows(table: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    row = ""
    for line in table.strip().splitlines():
        if line.startswith(" "):
            found[row].append(line.strip())
        else:
            row = line
            found[row] = []
    return found


def wrong_tests(named: dict[str, list[str]]) -> list[str]:
    """Rows without a test, with one that does not exist, or with one that does not run agents as a user does."""
    wrong = [row for row, tests in named.items() if not tests]
    for test in (test for tests in named.values() for test in tests):
        file, _, name = test.partition("::")
        if name not in names_in(file).defined or not is_public(file, name):
            wrong.append(test)
    return wrong


@pytest.mark.parametrize("section", SECTIONS)
def test_every_row_has_a_test_through_the_api_or_the_command_line(section: str) -> None:
    named = rows(SECTIONS[section])
    assert len(named) > 15
    assert wrong_tests(named) == []


def test_row_without_a_public_test_is_found() -> None:
    assert wrong_tests({"a row": []}) == ["a row"]
    assert wrong_tests({"a row": ["cli/test_run.py::test_nothing"]}) == ["cli/test_run.py::test_nothing"]
    assert wrong_tests({"a row": ["cli/test_gone.py::test_nothing"]}) == ["cli/test_gone.py::test_nothing"]
    for internal in (
        "core/test_gate.py::test_denial_by_default_names_no_rule",
        "engine/test_driver.py::test_intent_is_journaled_before_its_effect_runs",
        "engine/test_replay.py::test_replay_gives_the_recorded_answer_and_is_marked_as_replayed",
        "store/test_files.py::test_lock_of_a_killed_process_is_free",
    ):
        assert wrong_tests({"a row": [internal]}) == [internal]
