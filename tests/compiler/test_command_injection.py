"""Arguments of a command that would be run as a shell line or as code."""

import pytest

from agentrun.compiler.command_injection import find_injection_risks

LINES = [
    "sh -c «",
    "sh -c ls_«",
    "bash -lc «",
    "/bin/bash -e -c «",
    "zsh -ec «",
    "env A=1 bash -c «",
    "timeout 5 sh -c «",
    "sudo -n sh -c «",
    "ssh host «",
    "ssh -p 22 host «",
    "ssh host ls «",
]
CODE = [
    "python -c «",
    "python3.11 -c «",
    "/usr/bin/python3 -I -c «",
    "perl -e «",
    "perl -e«",
    "node --eval=«",
    "find . -exec «",
    "find . -execdir «",
    "git -c « log",
    "git -ccore.pager=« log",
    "tar cf x --checkpoint-action=exec=« y",
    "env «",
    "env A=1 «",
    "xargs «",
    "xargs -n 1 «",
    "sudo «",
    "timeout 5s «",
    "nice -n 5 «",
    "awk «",
    "sed -n «",
    "sh «",
    "bash -x «",
    "python «",
    "env -i python3 -c «",
]
FINE = [
    "ls «",
    "sh script.sh «",
    "sh -c ls sh «",
    "bash -lc ls bash « «",
    "env A=« ls",
    "env ls «",
    "timeout 5 git log «",
    "xargs -n 1 ls «",
    "python script.py «",
    "python -c pass «",
    "python -m http.server «",
    "perl -e print «",
    "git log «",
    "git grep -e «",
    "find « -name x",
    "find . -name «",
    "awk pass «",
    "sed -n pass «",
    "ssh «",
    "ssh -p 22 «",
    "ssh -l « host",
    "ssh « uptime",
    "systemctl show -- «",
]


def find_risks(line: str) -> list[tuple[int, str]]:
    return list(find_injection_risks([word.replace("«", "{{ args.x }}") for word in line.split()]))


def place(line: str) -> int:
    return next(index for index, word in enumerate(line.split()) if "«" in word)


@pytest.mark.parametrize("line", LINES)
def test_argument_in_a_shell_line_is_found(line: str) -> None:
    assert find_risks(line) == [(place(line), "line")]
    assert find_risks(line.replace("«", "fixed")) == []


@pytest.mark.parametrize("line", CODE)
def test_argument_in_code_is_found(line: str) -> None:
    assert find_risks(line) == [(place(line), "code")]
    assert find_risks(line.replace("«", "fixed")) == []


@pytest.mark.parametrize("line", FINE)
def test_plain_argument_is_allowed(line: str) -> None:
    assert find_risks(line) == []
