// Zoom and position, as fractions of an image, so that images of different sizes show the same point.

const MOST = 64;
const within = (value, low, high) => Math.min(high, Math.max(low, value));

export class Zoom {
  zoom = 1;
  x = 0.5; // what stands in the middle
  y = 0.5;

  constructor(draw) {
    this.draw = draw;
  }

  to(zoom, at = null) {
    const next = within(zoom, 1, MOST);
    if (at) {
      // What is under the pointer stays under it.
      this.x += at[0] * (1 / this.zoom - 1 / next);
      this.y += at[1] * (1 / this.zoom - 1 / next);
    }
    this.zoom = next;
    if (next === 1) [this.x, this.y] = [0.5, 0.5];
    this.move(0, 0);
  }

  move(x, y) {
    this.x = within(this.x + x, 0, 1);
    this.y = within(this.y + y, 0, 1);
    this.draw();
  }

  // Moves while a pointer is held. `size` answers the width and height of the image under it before zooming, or
  // nothing where there is none; `instead` may take the pointer for something else.
  drag(stage, size, instead = () => null) {
    let held = null;
    stage.addEventListener("pointerdown", (event) => {
      const image = size(event);
      if (!image || event.button) return;
      held = { at: [event.clientX, event.clientY], image, other: instead(event) };
      if (!held.other && this.zoom === 1) held = null;
      if (!held) return;
      event.preventDefault();
      stage.setPointerCapture(event.pointerId);
      held.other?.(event);
    });
    stage.addEventListener("pointermove", (event) => {
      if (!held) return;
      if (held.other) return held.other(event);
      const [x, y] = [event.clientX, event.clientY];
      const [width, height] = held.image;
      this.move((held.at[0] - x) / width / this.zoom, (held.at[1] - y) / height / this.zoom);
      held.at = [x, y];
    });
    for (const end of ["pointerup", "pointercancel"]) stage.addEventListener(end, () => { held = null; });
  }

  // By how much an arrow key moves.
  arrow(key) {
    const by = 0.15 / this.zoom;
    const step = { ArrowLeft: [-by, 0], ArrowRight: [by, 0], ArrowUp: [0, -by], ArrowDown: [0, by] }[key];
    if (step && this.zoom > 1) this.move(...step);
  }
}
