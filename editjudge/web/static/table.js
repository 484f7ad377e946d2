// A table of edits by keyboard: from row to row, and from page to page.

import { follow, keys } from "./keys.js";

const links = [...document.querySelectorAll(".edits tbody th a, .pairs h2 a")];

function step(by) {
  return () => {
    const here = links.indexOf(document.activeElement);
    const there = links[Math.min(links.length - 1, Math.max(0, here < 0 ? 0 : here + by))];
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
for (const form of document.querySelectorAll("form[action]")) {
  form.addEventListener("formdata", ({ formData }) => {
    for (const [name, value] of [...formData]) if (value === "") formData.delete(name);
  });
}
