// Elements are made here and nowhere else. Text from a run only ever becomes a text node.

const SVG = "http://www.w3.org/2000/svg";

function add(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined) continue;
    parent.append(typeof child === "object" ? child : document.createTextNode(String(child)));
  }
  return parent;
}

// Attributes come from this script, or are numbers and ids that it made.
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return add(node, children);
}

function drawing(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return add(node, children);
}

function button(label, action, attributes = {}) {
  const node = element("button", { type: "button", ...attributes }, label);
  node.addEventListener("click", action);
  return node;
}

function fill(node, ...children) {
  node.replaceChildren();
  return add(node, children);
}

function pretty(value) {
  return JSON.stringify(value, null, 2);
}

function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)}ms`;
  if (ms < 60000) return `${(Math.floor(ms / 100) / 10).toString()}s`;
  const minutes = Math.floor(ms / 60000);
  return `${minutes}m ${Math.floor((ms % 60000) / 1000)}s`;
}

const TONES = { good: "good", warn: "warn", bad: "bad", dim: "dim" };

function textLine([text, tone, indent]) {
  const classes = ["line", TONES[tone] || "", `i${Math.min(indent, 5)}`];
  return element("span", { class: classes.join(" ") }, text);
}
