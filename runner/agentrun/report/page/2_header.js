// The header: what ran, how it ended, what it used, and a chart of the turns.

const STATUS_TONES = { completed: "good", failed: "bad" };

function header(view) {
  const tone = STATUS_TONES[view.status] || "warn";
  return element("header", { class: "top" },
    element("div", { class: "title" },
      element("h1", {}, view.title),
      element("span", { class: `status ${tone}` }, view.status)),
    element("dl", { class: "facts" },
      view.facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)))),
    budgetList(view.budgets, "Budgets at the end of the run"),
    usageChart(view.usage));
}

function budgetList(budgets, label) {
  if (!budgets.length) return null;
  return element("ul", { class: "budgets", "aria-label": label }, budgets.map((each) =>
    element("li", {}, element("span", {}, each.text),
      each.limit ? element("meter", { min: 0, max: each.limit, value: Math.min(each.used, each.limit),
        high: each.limit * 0.9, optimum: 0, "aria-label": `${each.name} used` }) : null)));
}

function usageChart(usage) {
  if (usage.length < 2) return null;
  const step = Math.max(4, Math.min(28, 900 / usage.length)), height = 56, width = Math.max(step * usage.length, 340);
  const most = Math.max(...usage.map((each) => each.tokens), 1), dearest = Math.max(...usage.map((each) => each.cost), 1);
  const bars = usage.map((each, index) => {
    const tall = (each.tokens / most) * height;
    const bar = drawing("rect", { class: "bar k-model", x: index * step, y: height - tall, width: step - 1, height: tall },
      drawing("title", {}, `turn ${each.turn}: ${each.tokens} tokens, $${(each.cost / 1e6).toFixed(6)}`));
    bar.addEventListener("click", () => choose(each.entry));
    return bar;
  });
  const line = usage.map((each, index) => `${index * step + step / 2},${height - (each.cost / dearest) * height}`);
  return element("div", { class: "chart" }, drawing("svg", { width: width + 4, height: height + 16, role: "img",
    "aria-label": `tokens of ${usage.length} replies as bars, their cost as a line; the largest has ${most} tokens` },
  bars, drawing("polyline", { points: line.join(" "), fill: "none", stroke: "currentColor", "stroke-width": 1.2 }),
  drawing("text", { x: 0, y: height + 13 }, `tokens (bars) and cost (line) of each reply; at most ${most} tokens`)));
}
