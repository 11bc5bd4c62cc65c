// The timeline: one bar for each model call, tool call, retry, wait, approval, hook, delivery and sub-agent.

const LANES = ["model", "tool", "child", "approval", "hook", "delivery", "retry", "wait"];

function timeline(view) {
  if (!view.bars.length) return null;
  const used = LANES.filter((lane) => view.bars.some((bar) => bar.kind === lane));
  const last = Math.max(...view.bars.map((bar) => bar.end), 1);
  const left = 72, width = 920, tall = 13, height = used.length * (tall + 3);
  const scale = (ms) => left + (ms / last) * (width - left - 4);
  const rows = used.map((lane, index) => drawing("text", { x: 0, y: index * (tall + 3) + tall - 2 }, lane));
  const bars = view.bars.map((bar) => {
    const x = scale(bar.start), wide = Math.max(2, scale(bar.end) - x);
    const rect = drawing("rect", { class: `bar k-${used.includes(bar.kind) ? bar.kind : "wait"}`, x, rx: 2, height: tall,
      y: used.indexOf(bar.kind) * (tall + 3), width: wide },
    drawing("title", {}, `${bar.label}: ${duration(bar.end - bar.start)}, at ${duration(bar.start)}`));
    rect.addEventListener("click", () => choose(bar.entry));
    return rect;
  });
  const axis = [0, 0.25, 0.5, 0.75, 1].map((part) => drawing("text", { x: scale(part * last), y: height + 12,
    "text-anchor": part === 1 ? "end" : "start" }, duration(part * last)));
  return element("div", { class: "timeline" }, drawing("svg", { viewBox: `0 0 ${width} ${height + 16}`, class: "wide", role: "img",
    "aria-label": `timeline of ${view.bars.length} steps over ${duration(last)}` }, rows, bars, axis));
}
