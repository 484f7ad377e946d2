// Rating by hand or by key: each answer is sent as it is given, and the next question takes over.

import { follow, keys } from "./keys.js";
import { wipeOver } from "./pair.js";

const form = document.getElementById("answers");
const questions = [...form.querySelectorAll(".question")];
const saved = document.getElementById("saved");
const pair = document.getElementById("pair");
const blink = document.getElementById("blink");
const steps = document.getElementById("steps"); // pairs show one question at a time
const BLINK = 600; // milliseconds each: well under three flashes a second
const pairwise = pair.classList.contains("two");
let current = 0;
let timer = 0;
let sending = Promise.resolve();

document.getElementById("save").hidden = true; // needed where scripts do not run

function turnTo(index, scroll = true) {
  current = Math.min(questions.length - 1, Math.max(0, index));
  for (const [n, question] of questions.entries()) question.classList.toggle("current", n === current);
  if (steps) {
    document.getElementById("step").value = current + 1;
    document.getElementById("earlier").disabled = current === 0;
    document.getElementById("later").disabled = current === questions.length - 1;
  }
  if (scroll) questions[current].scrollIntoView({ block: "nearest" });
}

function answered(question) {
  return question.querySelector("input:checked") !== null;
}

async function send(question) {
  const parts = new URLSearchParams();
  for (const field of question.querySelectorAll("input:checked, textarea")) parts.set(field.name, field.value);
  if (!answered(question)) return;
  saved.textContent = "saving …";
  let problem = "";
  try {
    const answer = await fetch(location.pathname, { method: "POST", body: parts, headers: { accept: "application/json" } });
    if (answer.status === 409) problem = "this study is closed";
    else if (!answer.ok) problem = `the server answered ${answer.status}`;
  } catch {
    problem = "the server does not answer";
  }
  saved.textContent = problem ? `not saved: ${problem}` : "saved";
  question.classList.toggle("unsaved", problem !== "");
}

function keep(question) {
  sending = sending.then(() => send(question));
}

for (const [index, question] of questions.entries()) {
  question.addEventListener("focusin", () => turnTo(index, false)); // scrolling would move a button from under the finger
  question.addEventListener("change", (event) => {
    keep(question);
    if (event.target.type === "radio") turnTo(index + 1);
  });
}

function choose(value) {
  const question = questions[current];
  const named = (input) => input.dataset.key ?? input.value;
  const choice = [...question.querySelectorAll("input[type=radio]")].find((input) => named(input) === value);
  if (!choice) return;
  choice.checked = true;
  choice.dispatchEvent(new Event("change", { bubbles: true }));
}

async function next() {
  await sending;
  const open = questions.findIndex((question) => !answered(question) || question.classList.contains("unsaved"));
  if (open < 0) follow("next")();
  else {
    turnTo(open);
    saved.textContent = "this question is still open";
  }
}

function reason() {
  const field = questions[current].querySelector("textarea");
  field.closest("details").open = true;
  field.focus();
}

function blinking() {
  const on = blink.getAttribute("aria-pressed") !== "true";
  blink.setAttribute("aria-pressed", String(on));
  pair.classList.toggle("blinking", on);
  pair.classList.remove("second");
  clearInterval(timer);
  if (on && pair.classList.contains("wiping")) wipeOver();
  if (on) timer = setInterval(() => pair.classList.toggle("second"), BLINK);
}

blink.addEventListener("click", blinking);
if (steps) {
  steps.hidden = false;
  form.classList.add("stepwise");
  document.getElementById("earlier").addEventListener("click", () => turnTo(current - 1));
  document.getElementById("later").addEventListener("click", () => turnTo(current + 1));
}
form.addEventListener("submit", (event) => { event.preventDefault(); next(); });
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target.closest("textarea")) event.target.blur();
});

keys([
  [["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"], pairwise ? "left, tie, right, both bad for the marked question" : "this score for the marked question", (event) => choose(event.key)],
  [["c"], "can’t tell", () => choose("")],
  [["ArrowDown", "j"], "next question", () => turnTo(current + 1)],
  [["ArrowUp", "k"], "previous question", () => turnTo(current - 1)],
  [["r"], "write a reason (Escape leaves it)", reason],
  [["b"], "blink between the images", blinking],
  [["Enter", "n"], "next edit", next],
  [["p"], "previous edit", follow("previous")],
]);
const first = questions.findIndex((question) => !answered(question));
turnTo(Math.max(0, first), first > 0);
