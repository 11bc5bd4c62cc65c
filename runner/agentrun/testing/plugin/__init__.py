"""The implementation of the pytest plugin.

options             checks of the command line, summary sections
run_modes           replay, partly live runs, recording
items               cases as pytest items, and how their failures are shown
syrupy_snapshots    journals as snapshots of syrupy
fixture             the fixture `agentrun`
"""
