// A table of edits: filters that apply as they are typed, and keyboard shortcuts from row to row and page to page.

import { follow, keys } from "./keys.js";

const PAUSE = 300; // milliseconds without a key before filters apply
const links = () => [...document.querySelectorAll(".edits tbody th a, .card h2 a, .pairs h2 a")];

function step(by) {
  return () => {
    const all = links();
    const here = all.indexOf(document.activeElement);
    const there = all[Math.min(all.length - 1, Math.max(0, here < 0 ? 0 : here + by))];
    there?.focus();
    there?.scrollIntoView({ block: "nearest" });
  };
}

keys([
  [["j"], "next edit; Enter opens it", step(1)],
  [["k"], "previous edit", step(-1)],
  [["n"], "next page", follow("next")],
  [["p"], "previous page", follow("previous")],
  [["/"], "search", () => document.querySelector("input[type=search]")?.focus()],
]);

// What is empty is left out of the address, so that it stays short enough to send.
for (const form of document.querySelectorAll("form[action]:not([method=post])")) {
  form.addEventListener("formdata", ({ formData }) => {
    for (const [name, value] of [...formData]) if (value === "") formData.delete(name);
  });
}

// On a phone the filters would fill the first screen.
if (matchMedia("(max-width: 560px)").matches) document.getElementById("tucked")?.removeAttribute("open");

// Who checks an edit means the checked ones.
document.addEventListener("change", ({ target }) => {
  if (target.closest(".tick")) document.querySelector("#tagging select").value = document.querySelector(".tick input:checked") ? "checked" : "all";
});

const filters = document.getElementById("filters");
let timer = 0;
let latest = 0;

async function apply() {
  const mine = ++latest;
  const query = new URLSearchParams(new FormData(filters)).toString();
  const address = filters.action + (query ? `?${query}` : "");
  try {
    const answer = await fetch(address, { headers: { accept: "text/html" } });
    if (!answer.ok) throw new Error(answer.statusText);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("results");
    if (mine !== latest) return; // another key was pressed meanwhile
    document.getElementById("results").replaceWith(fresh);
    history.replaceState(null, "", address);
  } catch {
    location.assign(address); // the server says itself what is wrong
  }
}

if (filters) {
  document.getElementById("apply").hidden = true; // needed where scripts do not run
  for (const kind of ["input", "change"]) {
    filters.addEventListener(kind, () => { clearTimeout(timer); timer = setTimeout(apply, kind === "input" ? PAUSE : 0); });
  }
  filters.addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(timer); apply(); });
}
