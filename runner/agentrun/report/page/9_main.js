// The page of one run: build it, then follow the keyboard and the address.

let chosen = -1;

function choose(index, { moves = true } = {}) {
  const entry = VIEW.entries[index];
  if (!entry) return;
  const before = document.querySelector('.row[aria-current="true"]');
  if (before) before.removeAttribute("aria-current");
  chosen = index;
  const node = document.getElementById(entryId(entry));
  node.setAttribute("aria-current", "true");
  for (let box = node.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
  if (!(entry.lines || []).length) setEvery(true);
  if (moves) {
    node.scrollIntoView({ block: "nearest" });
    node.focus({ preventScroll: true });
    history.replaceState(null, "", `#${entryId(entry)}`);
  }
  showPane(VIEW, entry);
}

function first() {
  choose(Math.max(0, VIEW.entries.findIndex((entry) => (entry.lines || []).length)), { moves: false });
}

function move(by) {
  const rows = [...document.querySelectorAll("#story .row")].filter((row) => row.offsetParent !== null);
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.getAttribute("aria-current") === "true");
  const next = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))];
  choose(Number(next.dataset.entry));
}

function setEvery(on) {
  document.body.classList.toggle("every", on);
  const box = document.getElementById("every");
  if (box) box.checked = on;
}

function toggleAll() {
  const boxes = [...document.querySelectorAll("main details")];
  const open = boxes.some((box) => !box.open);
  for (const box of boxes) box.open = open;
}

function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
}

function search(text) {
  const words = text.toLowerCase();
  for (const row of document.querySelectorAll("#story .row")) {
    row.parentElement.classList.toggle("hidden", Boolean(words) && !row.textContent.toLowerCase().includes(words));
  }
}

function toolbar() {
  const field = element("input", { type: "search", id: "search", placeholder: "Search the story", "aria-label": "Search the story" });
  field.addEventListener("input", () => search(field.value));
  const every = element("input", { type: "checkbox", id: "every" });
  every.addEventListener("change", () => setEvery(every.checked));
  const runs = VIEWS.length < 2 ? [] : VIEWS.map((view, index) =>
    button(`message ${index + 1}`, () => { build(view); first(); }, { "aria-pressed": String(view === VIEW) }));
  return element("nav", { class: "tools", "aria-label": "Tools" }, runs, field,
    element("label", {}, every, " every record"),
    button("expand or collapse all", toggleAll), button("dark or light", toggleTheme),
    element("span", { class: "keys" }, "j k move · / search · e expand all · d dark or light"));
}

const KEYS = {
  j: () => move(1),
  k: () => move(-1),
  "/": () => document.getElementById("search").focus(),
  e: toggleAll,
  d: toggleTheme,
};

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target.tagName === "INPUT") event.target.blur();
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "INPUT") return;
  const action = KEYS[event.key];
  if (action) { event.preventDefault(); action(); }
});

window.addEventListener("beforeprint", () => {
  for (const box of document.querySelectorAll("details")) box.open = true;
});

function chooseFromAddress() {
  const node = document.getElementById(location.hash.slice(1));
  if (node && node.classList.contains("row")) choose(Number(node.dataset.entry));
}

// A conversation has several runs, and a page for each.
function build(view) {
  VIEW = view;
  document.title = `${view.title} · agentrun`;
  fill(PAGE, header(view), toolbar(), element("div", { class: "columns" },
    element("div", {}, timeline(view), story(view)), pane()));
}

const VIEWS = JSON.parse(document.getElementById("data").textContent).views;
const PAGE = element("div", {});
let VIEW = null;
document.body.append(PAGE);
build(VIEWS[0]);
window.addEventListener("hashchange", chooseFromAddress);
if (location.hash) chooseFromAddress();
else first();
