// The history: all of it once, then the newest points each time.

import { getJson } from "./api.js";

const MAX_SECONDS = 600;
const NEW_SECONDS = 10;
const MEAN_POINTS = 10;

export class History {
  constructor() {
    this.byPipeline = new Map();
    this.newest = null;
    this.askedAt = null;
  }

  async update() {
    const now = performance.now();
    const since = this.askedAt === null ? Infinity : (now - this.askedAt) / 1000 + NEW_SECONDS;
    this.add(await getJson(`/api/v1/history?seconds=${Math.min(MAX_SECONDS, Math.ceil(since))}`));
    this.askedAt = now;
  }

  // Adds the columns of a document, without the points that are known.
  add({ at, pipelines }) {
    const last = at.at(-1) ?? null;
    // The server's clock was set back, or another server answers.
    if (this.newest !== null && last !== null && last < this.newest) this.byPipeline.clear();
    const known = this.byPipeline.size ? this.newest ?? -Infinity : -Infinity;
    at.forEach((time, index) => {
      if (time <= known) return;
      for (const [name, columns] of Object.entries(pipelines)) {
        const values = Object.fromEntries(
          Object.entries(columns).map(([column, each]) => [column, each[index]]),
        );
        if (!this.byPipeline.has(name)) this.byPipeline.set(name, []);
        this.byPipeline.get(name).push([time, values]);
      }
    });
    if (last === null) return;
    this.newest = last;
    for (const points of this.byPipeline.values()) {
      while (points.length && points[0][0] < last - MAX_SECONDS) points.shift();
    }
  }

  // Returns [unix time, value or null] of a column.
  points(pipeline, column) {
    return (this.byPipeline.get(pipeline) ?? []).map(([at, values]) => [at, values[column] ?? null]);
  }

  // Returns the same points, each the mean of ten seconds, as the reports are.
  means(pipeline, column) {
    const points = this.points(pipeline, column);
    let sum = 0;
    return points.map(([at, value], index) => {
      sum += value ?? 0;
      if (index >= MEAN_POINTS) sum -= points[index - MEAN_POINTS][1] ?? 0;
      return [at, Math.max(0, sum) / Math.min(index + 1, MEAN_POINTS)];
    });
  }
}
