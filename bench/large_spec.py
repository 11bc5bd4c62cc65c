"""A spec of 200 lines like a large real one: tools of two kinds, rules with conditions, a long prompt."""

from string import Template

LINES = 200

HEAD = """\
# yaml-language-server: $schema=../schemas/agent.schema.json
agentrun: "1"
name: warehouse
description: Answers questions about orders and the warehouse, and moves stock.
params:
  order_id: {type: string, default: "1042"}
  region: {type: string, enum: [eu, us], default: eu}
model:
  provider: openai
  name: gpt-4.1-mini
  temperature: 0
  stream: true
  price: {input: 0.4, output: 1.6}
input: "Where is order {{ order_id }}?"
"""

HTTP_TOOL = """\
  fetch_$n:
    kind: http
    description: Reads page $n of an order.
    method: GET
    url: "https://shop.example/pages/$n/orders/{{ args.id }}"
    args:
      type: object
      properties: {id: {type: string, maxLength: 64}, page: {type: integer, minimum: 0}}
      required: [id]
    effect: read
"""

SHELL_TOOL = """\
  move_$n:
    kind: shell
    description: Moves stock between the shelves of hall $n.
    argv: [stock, move, --hall, "$n", "{{ args.shelf }}"]
    args:
      type: object
      properties: {shelf: {type: string, pattern: "^[A-Z][0-9]{1,4}$$"}, amount: {type: integer}}
      required: [shelf, amount]
    effect: at_most_once
"""

RULES = """\
    - {id: read-$n, allow: fetch_$n}
    - {id: small-$n, allow: move_$n, when: "args.amount <= 5$n"}
    - id: large-$n
      ask: move_$n
      when: "args.amount > 5$n"
      reason: a person signs off above 5$n
"""

TAIL = """\
budgets: {turns: 12, tokens: 50k, cost: 0.25, time: 2m}
output:
  schema:
    type: object
    properties: {answer: {type: string}, moved: {type: integer}}
    required: [answer]
  repairs: 2
"""

PROMPT = "  Step {}: you work in region {{{{ region }}}}; look before you move, and say what you did.\n"


def large_spec() -> str:
    """The text, filled up to LINES with lines of the prompt."""
    count = range(6)
    tools = "".join(Template(kind).substitute(n=n) for n in count for kind in (HTTP_TOOL, SHELL_TOOL))
    rules = "".join(Template(RULES).substitute(n=n) for n in count)
    fixed = f"{HEAD}tools:\n{tools}policy:\n  default: deny\n  rules:\n{rules}{TAIL}instructions: |\n"
    return fixed + "".join(PROMPT.format(n) for n in range(1, LINES - fixed.count("\n") + 1))
