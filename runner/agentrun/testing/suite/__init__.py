"""Runs cases: what `agentrun test` and the pytest plugin have in common.

found       the cases in files and folders
prepared    each agent compiled once
laid_over   what a case lays over its recording: stubs, faults, a clock
places      where faults strike
played      a case replayed: one run, or the runs of a conversation
evidence    what assertions look at
claims      whether each assertion holds
snapshots   journals as they were accepted
verdict     what came of a case
evaluate    all of it, for one case
sweep       every fault at every place of a case
upheld      what must hold of every run
"""
