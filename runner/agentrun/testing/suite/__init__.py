"""Runs cases: what `agentrun test` and the pytest plugin have in common.

One case, in the order of things:

found         the cases in files and folders
chosen        which of them are run; expression reads `-k`
prepared      each agent compiled once
overlay       what a case lays over its recording: stubs, faults, a clock
played        a case replayed: one run, or the runs of a conversation; recorded: the same for real
evidence      what assertions look at; trail reads it from journals
claims        whether each assertion holds
snapshots     journals as they were accepted; accepting writes them
verdict       what came of a case; told and causes put it into words
evaluate      all of it, for one case

Many cases:

carried       a suite, case by case; repeated: each several times
workers       by several processes; worker is one of them, memory what each does about garbage
sweep         every fault at every place of a case; upheld: what must hold of every run
coverage      which parts of the specs no case exercises
"""


# --- what a case lays over its recording ----------------------------------------------------------------------
