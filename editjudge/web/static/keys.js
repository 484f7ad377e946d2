// Keyboard shortcuts, listed in a dialog; they can be switched off, and do nothing while somebody types.

const stored = "editjudge.keys";
const bound = new Map();
let shown = [];

export function keys(bindings) {
  for (const [names, words, action] of bindings) {
    for (const name of names) bound.set(name, action);
    if (words) shown.push([names, words]);
  }
}

export function follow(id) {
  return () => document.getElementById(id)?.click();
}

function typing(target) {
  return target.closest("input:not([type=checkbox], [type=radio], [type=range]), textarea, select, dialog, [contenteditable]");
}

function named(names) {
  return names.map((name) => ({ " ": "Space", ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓" })[name] ?? name);
}

const dialog = document.getElementById("keys");
const on = document.getElementById("keys-on");

function help() {
  dialog.querySelector("dl").replaceChildren(...shown.flatMap(([names, words]) => {
    const term = document.createElement("dt");
    term.append(...named(names).map((name) => Object.assign(document.createElement("kbd"), { textContent: name })));
    return [term, Object.assign(document.createElement("dd"), { textContent: words })];
  }));
  dialog.showModal();
}

if (dialog) {
  on.checked = localStorage.getItem(stored) !== "off";
  on.addEventListener("change", () => localStorage.setItem(stored, on.checked ? "on" : "off"));
  document.getElementById("help").addEventListener("click", help);
  keys([[["?"], "list the keyboard shortcuts", help]]);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  if (on && !on.checked && event.key !== "?") return;
  const inside = event.target.closest("input[type=range], input[type=radio], .wide");
  if (inside && event.key.startsWith("Arrow")) return;
  if (event.key === " " && event.target.closest("button, a, summary, input")) return;
  const action = bound.get(event.key);
  if (!action) return;
  event.preventDefault();
  action(event);
});
