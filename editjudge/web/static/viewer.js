// Images side by side or one over the other: zoom and position are shared, as fractions of each image, so that
// images of different sizes show the same point. The URL keeps the view.

import { follow, keys } from "./keys.js";
import { Zoom } from "./zoom.js";

const viewer = document.getElementById("viewer");
const stage = document.getElementById("stage");
const single = document.getElementById("single");
const heat = document.getElementById("heat");
const proof = document.getElementById("proof");
const edge = document.getElementById("edge");
const caption = document.getElementById("caption");
const wipe = document.getElementById("wipe");
const [a, b, evidence] = ["a", "b", "evidence"].map((id) => document.getElementById(id));
const panes = new Map([...stage.querySelectorAll(".pane[data-role]")].map((pane) => [pane.dataset.role, pane]));
const MODES = ["side", "wipe", "blink", "heat", "evidence"];
const RIM = 2; // pixels
const LABEL = 32; // pixels; the stylesheet leaves them free above an image, and moves images down by half of it
const BLINK = 600; // milliseconds each: well under three flashes a second
const state = { mode: "side", blinking: false, second: false };
const view = new Zoom(draw);
let timer = 0;

const images = new Map([...panes].flatMap(([role, pane]) => [...pane.querySelectorAll("img")].map((image) => [role, image])));
const imageOf = (role) => images.get(role);
const output = () => imageOf("edited") ?? imageOf("edited_a") ?? imageOf("edited_b") ?? imageOf("input");
const size = (image) => [image.naturalWidth || image.width || 1, image.naturalHeight || image.height || 1];

// --- the address ---------------------------------------------------------------------------------------------

function remember() {
  const parts = new URLSearchParams();
  if (state.mode !== "side") parts.set("view", state.mode);
  if (view.zoom !== 1) for (const key of ["zoom", "x", "y"]) parts.set(key, view[key].toFixed(3));
  for (const choice of [a, b, evidence]) {
    const initial = [...choice.options].find((option) => option.defaultSelected) ?? choice.options[0];
    if (initial && choice.value !== initial.value) parts.set(choice.id, choice.value);
  }
  const hash = parts.size ? `#${parts}` : "";
  history.replaceState(null, "", location.pathname + location.search + hash);
  for (const link of document.querySelectorAll("#previous, #next, #disagreement, .siblings a")) link.hash = hash;
}

function recall() {
  const parts = new URLSearchParams(location.hash.slice(1));
  for (const choice of [a, b, evidence]) {
    const value = parts.get(choice.id);
    if ([...choice.options].some((option) => option.value === value)) choice.value = value;
  }
  for (const [key, low, high] of [["zoom", 1, 64], ["x", 0, 1], ["y", 0, 1]]) {
    const value = Number.parseFloat(parts.get(key));
    if (value >= low && value <= high) view[key] = value;
  }
  return MODES.includes(parts.get("view")) ? parts.get("view") : "side";
}

// --- zoom and position ---------------------------------------------------------------------------------------

function boxOf(element) {
  const pane = element.closest(".pane");
  return (pane.hidden ? single : pane).getBoundingClientRect();
}

// Zoomed in, an image in a small pane is as large as those in the others.
function fitted(element) {
  const box = boxOf(view.zoom > 1 ? output() ?? element : element);
  const [width, height] = size(element);
  // A rim of the stage's grey stays around an entire image, and its label above it.
  const scale = Math.min((box.width - 2 * RIM) / width, (box.height - LABEL - 2 * RIM) / height);
  return { width: width * scale, height: height * scale, scale };
}

function place(element) {
  const { width, height, scale } = fitted(element);
  const { zoom, x, y } = view;
  Object.assign(element.style, {
    width: `${width}px`,
    height: `${height}px`,
    transform: `translate(-50%, -50%) translate(${(0.5 - x) * width * zoom}px, ${(0.5 - y) * height * zoom}px) scale(${zoom})`,
    // Single pixels are to be seen once they are large.
    imageRendering: scale * zoom >= 3 ? "pixelated" : "auto",
  });
}

function draw() {
  const [width, height] = output() ? size(output()) : [1, 1];
  stage.style.setProperty("--shape", width / height);
  stage.toggleAttribute("data-near", view.zoom > 1);
  for (const element of stage.querySelectorAll(".pane:not([hidden]) img:not([hidden]), .pane:not([hidden]) canvas:not([hidden])")) {
    place(element);
  }
  const shown = output();
  const percent = shown ? Math.round(100 * fitted(shown).scale * view.zoom) : 100;
  document.getElementById("zoom").textContent = view.zoom === 1 ? `fit, ${percent} %` : `${percent} %`;
  if (state.mode === "wipe") cut();
  remember();
}

const zooms = {
  in: () => view.to(view.zoom * 1.5),
  out: () => view.to(view.zoom / 1.5),
  fit: () => view.to(1),
  full: () => {
    const shown = output();
    if (shown) view.to(1 / (fitted(shown).scale * devicePixelRatio));
  },
};

function elementAt(event) {
  return event.target.closest(".pane")?.querySelector("img:not([hidden]), canvas:not([hidden])");
}

stage.addEventListener("wheel", (event) => {
  const element = elementAt(event);
  if (!element || !(event.ctrlKey || document.activeElement === stage || view.zoom > 1)) return;
  event.preventDefault();
  const { width, height } = fitted(element);
  const box = boxOf(element);
  const at = [(event.clientX - box.x - box.width / 2) / width, (event.clientY - box.y - (box.height + LABEL) / 2) / height];
  view.to(view.zoom * Math.exp(-event.deltaY / 300), at);
}, { passive: false });

view.drag(stage, (event) => {
  const element = elementAt(event);
  if (!element) return null;
  const { width, height } = fitted(element);
  return [width, height];
}, (event) => (state.mode === "wipe" && (view.zoom === 1 || event.target === edge) ? cutAt : null));
stage.addEventListener("dblclick", () => (view.zoom === 1 ? zooms.full() : zooms.fit()));

// --- one over the other --------------------------------------------------------------------------------------

function cut() {
  const top = imageOf(b.value);
  if (!top) return;
  const box = boxOf(top);
  const inside = top.getBoundingClientRect();
  const x = box.width * (wipe.value / 100);
  const left = Math.min(100, Math.max(0, 100 * (box.x + x - inside.x) / inside.width));
  top.style.clipPath = `inset(0 0 0 ${left}%)`;
  edge.style.left = `${x}px`;
}

function cutAt(event) {
  const box = single.getBoundingClientRect();
  wipe.value = String(Math.round(100 * Math.min(1, Math.max(0, (event.clientX - box.x) / box.width))));
  cut();
}

// Two images move into one pane, and back when they are shown side by side again.
function apart() {
  for (const [role, image] of images) {
    image.style.clipPath = "";
    image.classList.remove("out");
    panes.get(role).prepend(image);
  }
}

function labels() {
  const names = [a, b].map((choice) => choice.selectedOptions[0]?.textContent ?? "");
  const sizes = [a, b].map((choice) => imageOf(choice.value)).map((image) => (image ? size(image) : [1, 1]));
  const [one, two] = sizes.map(([width, height]) => width / height);
  const differ = Math.abs(one / two - 1) > 0.01 ? " Their shapes differ: both are centred, neither is stretched." : "";
  return { names, differ };
}

function blink(second = !state.second) {
  state.second = second;
  imageOf(b.value)?.classList.toggle("out", !second);
  caption.textContent = `${second ? "B" : "A"}: ${labels().names[second ? 1 : 0]}`;
}

function blinking(on) {
  clearInterval(timer);
  state.blinking = on;
  if (on) timer = setInterval(blink, BLINK);
}

// --- differences ---------------------------------------------------------------------------------------------

const STOPS = [[0, 0, 4], [87, 16, 110], [188, 55, 84], [249, 142, 9], [252, 255, 164]];
const COLOURS = Array.from({ length: 256 }, (_, n) => {
  const at = (n / 255) * (STOPS.length - 1);
  const from = Math.min(STOPS.length - 2, Math.floor(at));
  return STOPS[from].map((value, channel) => value + (at - from) * (STOPS[from + 1][channel] - value));
});
const FULL = 96; // a difference of so many of 255 in the channel that differs most is drawn brightest
const MOST = 2048; // pixels on the longer side: full resolution of most edits, in tens of milliseconds

function pixels(image, width, height) {
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const [w, h] = size(image);
  const scale = Math.min(width / w, height / h);
  context.drawImage(image, (width - w * scale) / 2, (height - h * scale) / 2, w * scale, h * scale);
  return context.getImageData(0, 0, width, height);
}

function difference(one, two) {
  const [w, h] = size(two);
  const scale = Math.min(1, MOST / Math.max(w, h));
  const [width, height] = [Math.max(1, Math.round(w * scale)), Math.max(1, Math.round(h * scale))];
  const [p, q] = [pixels(one, width, height).data, pixels(two, width, height).data];
  const out = new ImageData(width, height);
  let changed = 0;
  for (let n = 0; n < p.length; n += 4) {
    const uncovered = p[n + 3] === 0;
    const most = Math.max(Math.abs(p[n] - q[n]), Math.abs(p[n + 1] - q[n + 1]), Math.abs(p[n + 2] - q[n + 2]));
    const colour = uncovered ? [128, 128, 128] : COLOURS[Math.min(255, Math.round((255 * most) / FULL))];
    out.data.set(colour, n);
    out.data[n + 3] = 255;
    if (!uncovered && most > 16) changed += 1;
  }
  Object.assign(heat, { width, height });
  heat.getContext("2d").putImageData(out, 0, 0);
  return changed / (p.length / 4);
}

// --- modes ---------------------------------------------------------------------------------------------------

function show(mode) {
  state.mode = mode;
  blinking(false);
  apart();
  const alone = mode !== "side";
  single.hidden = !alone;
  for (const pane of stage.querySelectorAll(".pane")) if (pane !== single) pane.hidden = alone;
  for (const element of [heat, proof, edge]) element.hidden = true;
  for (const button of viewer.querySelectorAll("[data-mode]")) button.setAttribute("aria-pressed", String(button.dataset.mode === mode));
  for (const part of viewer.querySelectorAll("[data-for]")) part.hidden = !part.dataset.for.split(" ").includes(mode);
  const [one, two] = [imageOf(a.value), imageOf(b.value)];
  const { names, differ } = labels();
  stage.dataset.mode = mode;
  if (mode === "evidence") measured();
  else if (alone && (!one || !two || one === two)) caption.textContent = "Two different images are needed for this view.";
  else if (mode === "heat") {
    heat.hidden = false;
    const share = difference(one, two);
    caption.textContent = `Difference of ${names[0]} and ${names[1]}: dark is none, yellow is ${FULL} of 255 or more. `
      + `${(100 * share).toFixed(1)} % of the pixels differ by more than 16.${differ}`;
  } else if (alone) {
    single.prepend(one, two);
    if (mode === "wipe") {
      edge.hidden = false;
      caption.textContent = `Left ${names[0]}, right ${names[1]}.${differ}`;
    } else {
      blink(false);
      blinking(true);
    }
  }
  draw();
}

function measured() {
  const [before, after] = viewer.dataset.evidence.split("/evidence//");
  const name = evidence.value;
  caption.textContent = "Measuring…";
  proof.onload = () => {
    proof.hidden = false;
    caption.textContent = { change: "Visible changes, over the edited image.", boundary: "The rim of the edit.", lettering: "Where lettering was read." }[name];
    draw();
  };
  proof.onerror = () => { caption.textContent = "Nothing of this kind was measured in this edit."; };
  if (name) proof.src = `${before}/evidence/${name}/${after}`;
  else caption.textContent = "Evidence needs an input and an edited image.";
}

for (const button of viewer.querySelectorAll("[data-mode]")) button.addEventListener("click", () => show(button.dataset.mode));
for (const button of viewer.querySelectorAll("[data-zoom]")) button.addEventListener("click", zooms[button.dataset.zoom]);
for (const choice of [a, b, evidence]) choice.addEventListener("change", () => show(state.mode));
wipe.addEventListener("input", cut);
new ResizeObserver(draw).observe(stage);

keys([
  [["j"], "next edit", follow("next")],
  [["k"], "previous edit", follow("previous")],
  [["d"], "next edit that judges or people disagree on, or that evidence contradicts", follow("disagreement")],
  [["m"], "the next model’s edit of the same input", follow("sibling")],
  [["u"], "back to the table", follow("up")],
  [["t"], "write tags (Tab goes on to the note)", () => document.getElementById("tags").focus()],
  [["s"], "side by side", () => show("side")],
  [["w"], "wipe; , and . move the edge", () => show("wipe")],
  [[",", "."], "", ({ key }) => { wipe.value = String(Number(wipe.value) + (key === "," ? -2 : 2)); cut(); }],
  [["b"], "blink; press again to stop", () => (state.mode === "blink" ? blinking(!state.blinking) : show("blink"))],
  [[" "], "while blinking: show the other image", () => { if (state.mode === "blink") { blinking(false); blink(); } }],
  [["h"], "difference", () => show("heat")],
  [["e"], "measured evidence", () => show("evidence")],
  [["+", "="], "zoom in", zooms.in],
  [["-"], "zoom out", zooms.out],
  [["0"], "fit", zooms.fit],
  [["1"], "full resolution", zooms.full],
  [["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"], "move, when zoomed in", ({ key }) => view.arrow(key)],
]);

const begin = recall();
Promise.allSettled([...images.values()].map((image) => image.decode())).then(() => {
  show(begin);
  viewer.dataset.ready = "true";
});
