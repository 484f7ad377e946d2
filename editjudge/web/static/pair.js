// Images of the rating form: two of them wiped over each other, and all of them zoomed at the same point.

import { keys } from "./keys.js";
import { Zoom } from "./zoom.js";

const pair = document.getElementById("pair");
const wiping = document.getElementById("wiping");
const edge = document.getElementById("wipe-edge");
const wipe = document.getElementById("wipe");
const images = [...pair.querySelectorAll("img")];
const figure = (role) => pair.querySelector(`figure[data-role=${role}]`);
const roles = figure("edited_a") ? ["edited_a", "edited_b"] : ["input", "edited"];
const [under, over] = roles.map(figure);
const STEPS = [1, 2, 4, 8];
const view = new Zoom(place);

function place() {
  for (const image of images) {
    image.style.transform = `scale(${view.zoom}) translate(${100 * (0.5 - view.x)}%, ${100 * (0.5 - view.y)}%)`;
    image.style.imageRendering = view.zoom > 2 ? "pixelated" : "auto";
  }
  document.getElementById("zoom").textContent = `${view.zoom}×`;
  pair.classList.toggle("near", view.zoom > 1);
}

function nearer() {
  view.to(STEPS[(STEPS.indexOf(view.zoom) + 1) % STEPS.length]);
}

function cut() {
  pair.style.setProperty("--cut", `${wipe.value}%`);
  if (over) over.style.clipPath = pair.classList.contains("wiping") ? `inset(0 0 0 ${wipe.value}%)` : "";
}

export function wipeOver() {
  const on = wiping.getAttribute("aria-pressed") !== "true" && Boolean(under && over);
  if (on && pair.classList.contains("blinking")) document.getElementById("blink").click();
  wiping.setAttribute("aria-pressed", String(on));
  pair.classList.toggle("wiping", on);
  edge.hidden = !on;
  cut();
}

under?.classList.add("under");
over?.classList.add("over");
wiping.hidden = !(under && over);
wiping.addEventListener("click", wipeOver);
document.getElementById("closer").addEventListener("click", nearer);
wipe.addEventListener("input", cut);
view.drag(pair, () => {
  const box = images[0]?.getBoundingClientRect();
  return box && [box.width / view.zoom, box.height / view.zoom];
});
// A link opens the image at full size, but not while the image is moved.
pair.addEventListener("click", (event) => { if (view.zoom > 1) event.preventDefault(); });
keys([
  [["w"], "wipe one image over the other; , and . move the edge", wipeOver],
  [[",", "."], "", ({ key }) => { wipe.value = String(Number(wipe.value) + (key === "," ? -4 : 4)); cut(); }],
  [["z"], "zoom: 1, 2, 4, 8 times; drag, or Shift and arrows move", nearer],
]);
document.addEventListener("keydown", (event) => {
  if (!event.key.startsWith("Arrow") || !event.shiftKey || view.zoom === 1) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  view.arrow(event.key);
}, true);
