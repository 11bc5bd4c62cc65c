"""Run cases, for `agentrun test` and the pytest plugin.

One case:

discovery           find cases in files and folders
selection           select cases by path, `-k`, tags, shard and `--lf`, and remember which did not pass
replay              compile the agent once, replay a case
recording           run a case live, record it, or run it partly live; recording_preview describes it before
fault_injection     stubs, faults and the clock of a case; stubs_and_faults selects them
evidence            the data that assertions check, read from journals
assertions          check each assertion
snapshots           compare, write and remove the accepted journals of cases
evaluation          run one case and judge it
verdict             the result; failure_text and case_changes put it into words
causes              group cases by the cause of their failure

Many cases:

runner              run a suite case by case
workers             run a suite in several processes
sweep               inject every fault at every call of a case, and check the invariants
coverage            the parts of the specs (spec_parts) that no case exercises
"""
