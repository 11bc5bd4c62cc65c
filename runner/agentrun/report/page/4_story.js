// The story: turns with their lines, sub-agents nested. Each record has an id, so that a link can point to it.

function entryId(entry) {
  return entry.run ? `s${entry.run}r${entry.seq}` : `r${entry.seq}`;
}

function story(view) {
  const main = element("main", { id: "story", "aria-label": "Story of the run" });
  main.append(element("div", {}, view.head.map(textLine)));
  const stack = [];
  let turn = null;
  view.entries.forEach((entry, index) => {
    while (stack.length && stack[stack.length - 1].run !== entry.run && isAbove(view, entry.run, stack)) stack.pop();
    if (entry.run && (!stack.length || stack[stack.length - 1].run !== entry.run)) {
      const list = element("ol", { class: "story" });
      const part = view.runs[entry.run];
      const box = element("details", { class: "child", open: "" },
        element("summary", {}, `sub-agent ${part.agent}`), list);
      (stack.length ? stack[stack.length - 1].list : turn.list).append(element("li", {}, box));
      stack.push({ run: entry.run, list });
    }
    if (!entry.run && (turn === null || entry.turn !== turn.number)) turn = openTurn(main, view, entry);
    (entry.run ? stack[stack.length - 1].list : turn.list).append(row(view, entry, index));
  });
  main.append(element("section", { "aria-label": "End of the run" }, view.end.map(textLine)));
  return main;
}

function isAbove(view, run, stack) {
  return stack.length > 0 && (run === 0 || stack.some((each) => each.run === run)
    || view.runs[run].depth <= view.runs[stack[stack.length - 1].run].depth);
}

function openTurn(main, view, entry) {
  const list = element("ol", { class: "story" });
  const name = entry.turn ? `Turn ${entry.turn}` : "Start";
  const used = view.usage.filter((each) => each.turn === entry.turn && !view.entries[each.entry].run);
  const tokens = used.reduce((sum, each) => sum + each.tokens, 0);
  const note = tokens ? `${tokens} tokens` : "";
  main.append(element("details", { class: "turn", open: "" },
    element("summary", {}, element("h2", {}, name), element("span", { class: "turn-note" }, note)), list));
  return { number: entry.turn, list };
}

function row(view, entry, index) {
  const lines = (entry.lines || []).map(textLine);
  const silent = !lines.length;
  const label = silent ? [element("span", { class: "line dim" }, `${entry.seq} ${entry.kind}`)] : lines;
  const node = button(label, () => choose(index), { class: "row", id: entryId(entry), "data-entry": index });
  return element("li", silent ? { class: "silent" } : {}, node);
}
