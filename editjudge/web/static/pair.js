// Two outputs of one input: wiped over each other, and looked at from near, all pictures at the same place.

import { keys } from "./keys.js";

const pair = document.getElementById("pair");
const wiping = document.getElementById("wiping");
const edge = document.getElementById("wipe-edge");
const wipe = document.getElementById("wipe");
const closer = document.getElementById("closer");
const zoom = document.getElementById("zoom");
const pictures = [...pair.querySelectorAll("img")];
const [left, right] = ["edited_a", "edited_b"].map((role) => pair.querySelector(`[data-role=${role}] img`));
const STEPS = [1, 2, 4, 8];
const state = { zoom: 1, x: 0, y: 0 };
let held = null;

function place() {
  for (const picture of pictures) {
    // Moved in shares of the picture, so that all of them show the same place.
    picture.style.transform = `scale(${state.zoom}) translate(${100 * state.x}%, ${100 * state.y}%)`;
    picture.style.imageRendering = state.zoom > 2 ? "pixelated" : "auto";
  }
  zoom.textContent = `${state.zoom}×`;
  pair.classList.toggle("near", state.zoom > 1);
}

function move(x, y) {
  const most = (1 - 1 / state.zoom) / 2;
  state.x = Math.min(most, Math.max(-most, state.x + x));
  state.y = Math.min(most, Math.max(-most, state.y + y));
  place();
}

function nearer() {
  state.zoom = STEPS[(STEPS.indexOf(state.zoom) + 1) % STEPS.length];
  if (state.zoom === 1) [state.x, state.y] = [0, 0];
  move(0, 0);
}

function cut() {
  if (right) right.closest("figure").style.clipPath = pair.classList.contains("wiping") ? `inset(0 0 0 ${wipe.value}%)` : "";
}

export function wipeOver() {
  const on = wiping.getAttribute("aria-pressed") !== "true" && left && right;
  wiping.setAttribute("aria-pressed", String(Boolean(on)));
  pair.classList.toggle("wiping", Boolean(on));
  edge.hidden = !on;
  cut();
}

if (wiping) {
  wiping.addEventListener("click", wipeOver);
  closer.addEventListener("click", nearer);
  wipe.addEventListener("input", cut);
  pair.addEventListener("pointerdown", (event) => {
    if (state.zoom === 1 || event.button) return;
    held = [event.clientX, event.clientY];
    event.preventDefault();
    pair.setPointerCapture(event.pointerId);
  });
  pair.addEventListener("pointermove", (event) => {
    if (!held) return;
    const box = pictures[0].getBoundingClientRect();
    move((event.clientX - held[0]) / box.width, (event.clientY - held[1]) / box.height);
    held = [event.clientX, event.clientY];
  });
  for (const end of ["pointerup", "pointercancel"]) pair.addEventListener(end, () => { held = null; });
  // A link opens the picture at full size; while it is moved, it must not.
  pair.addEventListener("click", (event) => { if (state.zoom > 1) event.preventDefault(); });
  keys([
    [["w"], "wipe the right output over the left; , and . move the edge", wipeOver],
    [[",", "."], "", ({ key }) => { wipe.value = String(Number(wipe.value) + (key === "," ? -4 : 4)); cut(); }],
    [["z"], "zoom: 1, 2, 4, 8 times; drag, or Shift and arrows move", nearer],
  ]);
  document.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: [0.1, 0], ArrowRight: [-0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] }[event.key];
    if (!by || !event.shiftKey || state.zoom === 1) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    move(by[0] / state.zoom, by[1] / state.zoom);
  }, true);
}
