// The pane beside the story: why a line happened, the prompt, the wire and the journal.

const TABS = ["Why", "Prompt", "Wire", "Journal"];
let tab = "Why";

function pane() {
  return element("aside", { id: "pane", "aria-label": "Details of the selected line", tabindex: 0 });
}

function showPane(view, entry) {
  const tabs = element("div", { class: "tabs", role: "tablist", "aria-label": "Details" }, TABS.map((name) =>
    button(name, () => { tab = name; showPane(view, entry); }, { class: "tab", role: "tab", id: `tab-${name}`,
      "aria-selected": String(name === tab), "aria-controls": "details" })));
  const content = element("div", { id: "details", role: "tabpanel", "aria-labelledby": `tab-${tab}` },
    { Why: why, Prompt: prompt, Wire: wire, Journal: journal }[tab](view, entry));
  fill(document.getElementById("pane"),
    element("h2", {}, `Record ${entry.seq} · ${entry.kind}`), tabs, content);
}

function why(view, entry) {
  return [fullText(entry), ruling(rulingOf(view, entry)), fault(entry), guards(entry), budgetsAt(view, entry)];
}

function fullText(entry) {
  const fact = entry.fact || {};
  const parts = (fact.reply && fact.reply.message && fact.reply.message.parts) || fact.parts || (fact.input && fact.input.parts) || [];
  const texts = parts.map((part) => part.kind === "tool_call" ? `${part.tool} ${part.arguments}` : part.text)
    .filter((text) => typeof text === "string" && text);
  if (typeof fact.told === "string") texts.push(fact.told);
  if (fact.arguments && typeof fact.arguments === "object") texts.push(pretty(fact.arguments));
  return texts.length ? [element("h3", {}, "Full text"), texts.map((text) => element("pre", {}, text))] : null;
}

// A question, its answer and a refused call have the ruling that led to them.
function rulingOf(view, entry) {
  const subject = entry.fact && (entry.fact.subject || entry.fact.call);
  for (let index = view.entries.indexOf(entry); index >= 0 && subject; index -= 1) {
    const each = view.entries[index];
    if (each.run === entry.run && each.kind === "ruled" && each.fact.subject === subject) return each;
  }
  return null;
}

function ruling(entry) {
  if (entry === null) return null;
  const rules = entry.rules || [];
  const rows = rules.map((rule) => element("tr", {},
    element("td", {}, rule.id, rule.decisive ? element("strong", {}, " (decides)") : null),
    element("td", {}, rule.ruling),
    element("td", { class: rule.matched ? "good" : "dim" }, rule.matched ? "matches" : "does not match",
      rule.failure ? element("div", { class: "warn" }, `the condition has no value: ${rule.failure}`) : null),
    element("td", {}, rule.condition ? element("code", {}, rule.condition) : "always",
      (rule.values || []).map(([name, value]) => element("div", { class: "dim" }, `${name} = ${value}`)),
      rule.reason ? element("div", {}, rule.reason) : null)));
  return [element("h3", {}, `Ruling: ${entry.fact.ruling}`),
    rules.length ? element("table", {}, element("thead", {}, element("tr", {},
      ["rule", "says", "result", "condition and values"].map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, rows)) : element("p", {}, "No rule names this tool."),
    entry.default ? element("p", {}, `No rule matched, so the default of the policy applies: ${entry.default}.`) : null];
}

function fault(entry) {
  const found = entry.fact && (entry.fact.fault || (entry.fact.stop && entry.fact.stop.fault));
  if (!found) return null;
  const lines = Array.isArray(found.fields && found.fields.explanation) ? found.fields.explanation : [];
  return [element("h3", {}, found.code), element("p", {}, found.message),
    lines.length ? element("pre", {}, lines.join("\n")) : null,
    found.hint ? element("p", { class: "dim" }, found.hint) : null];
}

function guards(entry) {
  const found = entry.guards || [];
  return found.length ? [element("h3", {}, "Guards"), element("ul", {}, found.map((text) => element("li", {}, text)))] : null;
}

function budgetsAt(view, entry) {
  let index = view.entries.indexOf(entry);
  while (index >= 0 && !(view.entries[index].run === entry.run && (view.entries[index].budgets || []).length)) index -= 1;
  return index < 0 ? null : [element("h3", {}, "Budgets after this record"),
    budgetList(view.entries[index].budgets, "Budgets after this record")];
}

function prompt(view) {
  const found = view.prompt;
  if (!found) return element("p", {}, "The prompt is not known.");
  const rows = found.lines.map((line, index) => element("tr", {},
    element("td", { class: "number" }, index + 1),
    element("td", { class: "place" }, line.place || ""),
    element("td", {}, (line.params || []).length ? element("mark", {}, line.text) : line.text,
      (line.params || []).length ? element("div", { class: "dim" }, `uses ${line.params.join(", ")}`) : null)));
  return [(found.changes || []).length ? [element("h3", {}, "Changed since the cassette"),
    element("ul", {}, found.changes.map((text) => element("li", { class: "warn" }, text)))] : null,
  element("table", { class: "prompt" }, element("thead", {}, element("tr", {},
    ["line", "from", "text"].map((name) => element("th", { scope: "col" }, name)))), element("tbody", {}, rows))];
}

function wire(view, entry) {
  if (entry.exchange === undefined) {
    const known = (view.exchanges || []).length;
    return element("p", {}, known ? "This record sent nothing." : "What was sent is only known with a cassette.");
  }
  return exchangeBlock(view, view.exchanges[entry.exchange]);
}

function exchangeBlock(view, exchange) {
  const more = element("div", {});
  const earlier = exchange.same_as ? [element("p", {},
    `The first ${exchange.kept} messages, the instructions and the settings are those of interaction ${exchange.same_as}. `,
    button(`show interaction ${exchange.same_as}`, () => fill(more, exchangeBlock(view, view.exchanges[exchange.same_as - 1])),
      { class: "copy" })), more] : null;
  return [element("h3", {}, `Interaction ${exchange.number}, line ${exchange.line} of the cassette`), earlier,
    element("pre", {}, exchange.request.join("\n")), element("pre", {}, exchange.reply.join("\n"))];
}

function journal(view, entry) {
  const part = view.runs[entry.run];
  const record = { seq: entry.seq, fact: entry.fact };
  return [element("p", {}, `Run ${part.run}: ${part.checked}.`), element("pre", {}, pretty(record)),
    (view.commands || []).length ? element("h3", {}, "Commands") : null,
    (view.commands || []).map((text) => element("div", { class: "command" }, element("pre", {}, text),
      button("copy", (event) => copy(text, event.currentTarget), { class: "copy" })))];
}

function copy(text, from) {
  const done = () => fill(from, "copied");
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, () => fill(from, "select the text"));
  else fill(from, "select the text");
}
