"""What the pytest plugin does.

options     what the command line asks for
ways        how cases are run
items       cases as items
journals    their journals as snapshots of syrupy
failure     how a case that failed is shown
runs        runs of agents for Python tests
"""
