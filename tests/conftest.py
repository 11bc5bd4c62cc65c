"""How much randomness the tests see.

`AGENTRUN_TESTS=normal`, the default: the same examples in every run: what is red is red for everybody.
`AGENTRUN_TESTS=long`: many more examples, different in each run; a failure prints how to repeat it.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "normal",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine is no bug
)
settings.register_profile(
    "long",
    max_examples=2_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],  # slow examples are what the long run is for
)
settings.load_profile(os.environ.get("AGENTRUN_TESTS", "normal"))
