// Line charts of the history, with a value under the pointer.

import { fill, setAttribute, setText, svg } from "./dom.js";
import { clockTime, duration } from "./format.js";

const WIDTH = 1000;
const HEIGHT = 200;
const MAX_GAP_SECONDS = 3;

// Rounds up to 1, 2 or 5 times a power of ten.
export function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value * 0.999);
}

// The path of a line; gaps in the values or in time break it.
export function linePath(points, x, y) {
  let path = "";
  let last = null;
  for (const [at, value] of points) {
    if (value === null) {
      last = null;
      continue;
    }
    const joined = last !== null && at - last <= MAX_GAP_SECONDS;
    path += `${joined ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    last = at;
  }
  return path;
}

export class Chart {
  // `format` and `axis` make text of a value; `limits` are [value, name] of lines; `top` fixes the axis.
  constructor(figure, { title, format, axis = format, limits = [], top = null }) {
    this.figure = figure;
    this.format = format;
    this.axis = axis;
    this.limits = limits;
    this.fixedTop = top;
    figure.append(document.getElementById("t-chart").content.cloneNode(true));
    fill(figure, { title });
    this.title = title;
    this.plot = figure.querySelector(".plot");
    this.plot.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    this.plot.setAttribute("aria-label", `${title}: no values yet`);
    this.cursor = figure.querySelector(".cursor");
    this.pointer = null;
    this.plot.addEventListener("pointermove", (event) => {
      const box = this.plot.getBoundingClientRect();
      this.pointer = (event.clientX - box.left) / box.width;
      this.#showPointer();
    });
    this.plot.addEventListener("pointerleave", () => {
      this.pointer = null;
      this.#showPointer();
    });
  }

  // `points` are [unix time, value or null], the last one newest.
  show(points, seconds) {
    const end = points.length ? points[points.length - 1][0] : 0;
    this.points = points.filter(([at]) => at >= end - seconds);
    this.seconds = seconds;
    this.end = end;
    const values = this.points.map(([, value]) => value).filter((value) => value !== null);
    this.top = this.fixedTop ?? ceiling(Math.max(0, ...values));
    const x = (at) => WIDTH * (1 - (end - at) / seconds);
    const y = (value) => HEIGHT * (1 - value / this.top);
    const line = linePath(this.points, x, y);
    setAttribute(this.figure.querySelector(".series"), "d", line);
    setAttribute(this.figure.querySelector(".area"), "d", areaPath(line));
    this.#showGrid(y);
    fill(this.figure, { from: `${duration(seconds)} ago` });
    const [low, high] = [Math.min(...values), Math.max(...values)].map(this.format);
    const now = this.points.at(-1)?.[1] ?? null;
    setAttribute(this.plot, "aria-label", values.length
      ? `${this.title}, the last ${duration(seconds)}: now ${this.format(now)}, from ${low} to ${high}`
      : `${this.title}: no values yet`);
    this.#showPointer();
  }

  #showGrid(y) {
    const marks = this.limits.length
      ? [[this.top, ""], ...this.limits]
      : [[this.top, ""], [this.top / 2, ""]];
    const key = JSON.stringify([this.top, this.limits]);
    if (key === this.gridKey) return;
    this.gridKey = key;
    const grid = this.figure.querySelector(".grid");
    const ticks = this.figure.querySelector(".ticks");
    grid.replaceChildren(...[...marks, [0, ""]].map(([value, name]) => (
      svg("line", { x1: 0, x2: WIDTH, y1: y(value), y2: y(value), class: name ? "limit" : "" })
    )));
    ticks.replaceChildren(...marks.map(([value, name]) => {
      const tick = document.createElement("span");
      tick.style.top = `${(100 * y(value)) / HEIGHT}%`;
      tick.textContent = name ? `${this.axis(value)} ${name}` : this.axis(value);
      return tick;
    }));
  }

  #showPointer() {
    const shown = this.points?.length ? this.#pointed() : null;
    const last = this.points?.at(-1);
    fill(this.figure, {
      now: this.format(shown ? shown[1] : last?.[1] ?? null),
      at: shown ? clockTime(shown[0]) : "",
    });
    this.cursor.classList.toggle("on", shown !== null);
    if (shown) {
      const x = WIDTH * (1 - (this.end - shown[0]) / this.seconds);
      for (const [name, value] of Object.entries({ x1: x, x2: x, y1: 0, y2: HEIGHT })) {
        setAttribute(this.cursor, name, value);
      }
    }
  }

  // The point nearest to the pointer.
  #pointed() {
    if (this.pointer === null) return null;
    const at = this.end - this.seconds * (1 - this.pointer);
    return this.points.reduce((a, b) => (Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a));
  }
}

// Closes each piece of a line along the axis.
function areaPath(line) {
  return line.split("M").filter(Boolean).map((piece) => {
    const first = piece.split("L")[0].split(" ")[0];
    const last = piece.split("L").at(-1).split(" ")[0];
    return `M${piece}L${last} ${HEIGHT}L${first} ${HEIGHT}Z`;
  }).join("");
}
