// Line charts, with a value under the pointer.

import { h, render } from "./dom.js";
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

// Returns the path of a line, broken at gaps in the values or in time.
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
  // `format` and `axis` turn a value into text; `limits` are lines, [value, name]; `top` fixes the axis.
  constructor(figure, { title, format, axis = format, limits = [], top = null }) {
    Object.assign(this, { figure, title, format, axis, limits, fixedTop: top, pointer: null });
    this.show([], 0);
  }

  // `points` are [unix time, value or null], the last one newest.
  show(points, seconds) {
    const end = points.at(-1)?.[0] ?? 0;
    Object.assign(this, { seconds, end, points: points.filter(([at]) => at >= end - seconds) });
    this.#draw();
  }

  #draw() {
    const { title, format, axis, points, seconds, end } = this;
    const values = points.map(([, value]) => value).filter((value) => value !== null);
    const top = this.fixedTop ?? ceiling(Math.max(0, ...values));
    const x = (at) => WIDTH * (1 - (end - at) / (seconds || 1));
    const y = (value) => HEIGHT * (1 - value / top);
    const line = linePath(points, x, y);
    const shown = this.#pointed();
    const now = shown ?? points.at(-1);
    const marks = [[top, ""], ...(this.limits.length ? this.limits : [[top / 2, ""]])];
    const [low, high] = [Math.min(...values), Math.max(...values)].map(format);
    const label = values.length
      ? `${title}, the last ${duration(seconds)}: now ${format(points.at(-1)[1])}, from ${low} to ${high}`
      : `${title}: no values yet`;
    const at = shown && x(shown[0]);
    render(this.figure,
      h("figcaption", {}, h("span", {}, title), h("output", {}, format(now?.[1] ?? null))),
      h("svg", {
        class: "plot", role: "img", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-label": label,
        onpointermove: (event) => this.#point(event),
        onpointerleave: () => this.#point(null),
      },
      h("g", { class: "grid" }, [...marks, [0, ""]].map(([value, name]) => (
        h("line", { x1: 0, x2: WIDTH, y1: y(value), y2: y(value), class: name && "limit" })
      ))),
      h("path", { class: "area", d: areaPath(line) }),
      h("path", { class: "series", d: line }),
      shown && h("line", { class: "cursor", x1: at, x2: at, y1: 0, y2: HEIGHT })),
      h("div", { class: "ticks", "aria-hidden": "true" }, marks.map(([value, name]) => (
        h("span", { style: { top: `${(100 * y(value)) / HEIGHT}%` } }, `${axis(value)} ${name}`.trim())
      ))),
      h("div", { class: "times", "aria-hidden": "true" },
        h("span", {}, seconds ? `${duration(seconds)} ago` : ""), h("span", {}, shown ? clockTime(shown[0]) : ""), h("span", {}, "now")));
  }

  #point(event) {
    const box = event?.currentTarget.getBoundingClientRect();
    this.pointer = event && (event.clientX - box.left) / box.width;
    this.#draw();
  }

  // The point nearest to the pointer.
  #pointed() {
    if (this.pointer === null || !this.points.length) return null;
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
