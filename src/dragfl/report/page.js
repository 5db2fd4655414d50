// The page of a report: tables that can be sorted and filtered, and line plots with values under the pointer.
// Runs are numbered; data-run of an element is the run that it belongs to. Without this script the page has all numbers.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const shown = data.runs.map(() => true); // by run: whether it passes the filter

// ---- tables

// The first number of a cell with its unit. Censored values are larger than all others; cells without a number come last.
function cellValue(cell) {
  const text = cell.textContent.trim();
  const number = /-?\d[\d,]*(\.\d+)?(e[+-]?\d+)?/i.exec(text);
  if (!number || /^(diverged|failed|n\/a)/.test(text)) return NaN;
  if (/^(>|not |never)/.test(text)) return Infinity;
  const unit = ["kB", "MB", "GB", "TB", "PB"].findIndex((name) => text.slice(number.index).includes(name));
  return Number(number[0].replaceAll(",", "")) * 1000 ** (unit + 1);
}

function sortTable(table, column, heading) {
  const down = heading.getAttribute("aria-sort") === "ascending";
  for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const numeric = heading.classList.contains("number");
  const compare = (a, b) => {
    const [x, y] = [a, b].map((row) => row.cells[column]);
    if (!numeric) return x.textContent.trim().localeCompare(y.textContent.trim(), "en", { numeric: true }) * (down ? -1 : 1);
    const [p, q] = [cellValue(x), cellValue(y)];
    if (Number.isNaN(p) || Number.isNaN(q)) return Number.isNaN(p) - Number.isNaN(q);
    return p === q ? 0 : p < q === down ? 1 : -1;
  };
  for (const body of table.tBodies) { // runs on different problems are not ranked together
    const rows = [...body.rows].filter((row) => !row.querySelector(".block"));
    body.append(...rows.sort(compare));
  }
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.title = "sort";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => sortTable(table, column, heading));
  });
}

// ---- filter

function applyFilter(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  data.runs.forEach((search, run) => { shown[run] = words.every((word) => search.includes(word)); });
  for (const element of document.querySelectorAll("[data-run]")) element.hidden = !shown[element.dataset.run];
  for (const body of document.querySelectorAll("table.sortable tbody")) {
    body.hidden = [...body.rows].every((row) => row.hidden || row.querySelector(".block"));
  }
  const count = shown.filter(Boolean).length;
  document.querySelector(".filter output").textContent =
    count === shown.length ? "" : count ? `${count} of ${shown.length} rows` : "no row matches";
  drawAll();
}

const filter = document.querySelector(".filter");
if (filter && data.runs.length > 1) {
  filter.hidden = false;
  const input = filter.querySelector("input");
  input.addEventListener("input", () => applyFilter(input.value));
  for (const button of document.querySelectorAll("[data-filter]")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      input.value = input.value === button.dataset.filter ? "" : button.dataset.filter;
      applyFilter(input.value);
      filter.scrollIntoView({ block: "nearest" });
    });
  }
}

// ---- numbers of the plots

const escapeText = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const short = (value, digits) => String(Number(value.toPrecision(digits)));

function formatBytes(value) {
  const power = Math.min(5, Math.max(0, Math.floor(Math.log10(Math.max(1, value)) / 3)));
  return `${short(value / 1000 ** power, 3)} ${["B", "kB", "MB", "GB", "TB", "PB"][power]}`;
}

const formats = {
  round: (value) => short(value, 6),
  bytes: formatBytes,
  percent: (value, digits = 1) => `${(100 * value).toFixed(digits)} %`,
  number: (value) => short(value, 4),
};

// Round numbers between low and high, about `count` of them.
function ticks(low, high, count, whole) {
  const raw = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  let step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
  if (whole) step = Math.max(1, step);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) found.push(Number((i * step).toPrecision(12)));
  return found;
}

function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power += 1) {
    for (const factor of [1, 2, 5]) found.push(Number((factor * 10 ** power).toPrecision(3)));
  }
  const inside = found.filter((value) => value >= low && value <= high);
  const decades = inside.filter((value) => Number.isInteger(Number(Math.log10(value).toFixed(6))));
  return inside.length > 7 && decades.length > 1 ? decades : inside;
}

// Places moved as little as keeps them `gap` apart and, if they fit, between low and high.
function spread(places, gap, low, high) {
  const blocks = [];
  const fit = (members) => {
    const half = (gap * (members.length - 1)) / 2;
    const middle = members.reduce((sum, i) => sum + places[i], 0) / members.length;
    return { members, middle: Math.max(Math.min(middle, high - half), low + half) };
  };
  for (const i of places.map((_, i) => i).sort((a, b) => places[a] - places[b])) {
    let block = fit([i]);
    for (let last = blocks.at(-1); last; last = blocks.at(-1)) {
      if (block.middle - last.middle >= (gap * (block.members.length + last.members.length)) / 2) break;
      blocks.pop();
      block = fit([...last.members, ...block.members]);
    }
    blocks.push(block);
  }
  const moved = [...places];
  for (const { members, middle } of blocks) {
    members.forEach((i, place) => { moved[i] = middle + gap * (place - (members.length - 1) / 2); });
  }
  return moved;
}

// ---- plots

const lineEnd = (line) => [...line.single.map((points) => points.at(-1)), ...line.mean.slice(-1)].reduce((a, b) => (b[0] > a[0] ? b : a));
const inkOf = (line) => `class="ink" style="--light:${line.colours[0]};--dark:${line.colours[1]}"`;
const pen = (line, width) => `stroke-width="${width}"${line.dash ? ` stroke-dasharray="${line.dash}"` : ""}`;
const measure = document.createElement("canvas").getContext("2d");
measure.font = "500 12px system-ui, sans-serif";

// Draw one plot as SVG; the scales are returned with its lines, for the pointer.
function drawPlot(chart, plot, lines, width, named) {
  const [x0, x1, y0, y1] = plot.limits;
  const names = named ? Math.max(...lines.map((line) => measure.measureText(line.label).width), 0) + 26 : 10;
  const margin = { left: 58, right: names, top: plot.title ? 28 : 10, bottom: 40 };
  const height = Math.max(margin.top + margin.bottom + (chart.plots.length > 1 ? 170 : Math.min(340, Math.max(230, 0.36 * width))),
    margin.top + margin.bottom + (named ? 15 * lines.length : 0));
  const [right, bottom] = [width - margin.right, height - margin.bottom];
  const scale = plot.y.log ? Math.log : (value) => value;
  const X = (value) => margin.left + ((right - margin.left) * (value - x0)) / (x1 - x0);
  const Y = (value) => bottom - ((bottom - margin.top) * (scale(Math.max(value, plot.y.log ? 1e-300 : -Infinity)) - scale(y0))) / (scale(y1) - scale(y0));
  const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${X(x).toFixed(1)} ${Y(y).toFixed(1)}`).join("");

  let axes = "";
  const yTicks = plot.y.log ? logTicks(y0, y1) : ticks(y0, y1, 5, false);
  for (const value of yTicks) {
    const text = plot.y.unit === "percent" ? formats.percent(value, yTicks.every((v) => Number.isInteger(Number((100 * v).toFixed(6)))) ? 0 : 1) : formats.number(value);
    axes += `<line class="grid" x1="${margin.left}" x2="${right}" y1="${Y(value)}" y2="${Y(value)}"/>`;
    axes += `<text x="${margin.left - 8}" y="${Y(value) + 4}" text-anchor="end">${text}</text>`;
  }
  for (const value of ticks(x0, x1, Math.max(3, Math.floor((right - margin.left) / 65)), chart.x.unit === "round")) {
    axes += `<line class="grid" x1="${X(value)}" x2="${X(value)}" y1="${margin.top}" y2="${bottom}"/>`;
    axes += `<text x="${X(value)}" y="${bottom + 16}" text-anchor="middle">${formats[chart.x.unit](value)}</text>`;
  }
  axes += `<text x="${(margin.left + right) / 2}" y="${height - 5}" text-anchor="middle">${escapeText(chart.x.label)}</text>`;
  axes += `<text transform="translate(12 ${(margin.top + bottom) / 2}) rotate(-90)" text-anchor="middle">${escapeText(plot.y.label)}</text>`;
  if (plot.title) axes += `<text class="title" x="${margin.left}" y="16">${escapeText(plot.title)}</text>`;
  if (chart.target !== null) axes += `<line class="target" x1="${margin.left}" x2="${right}" y1="${Y(chart.target)}" y2="${Y(chart.target)}"/>`;

  const clip = `clip-${Math.random().toString(36).slice(2)}`;
  const ends = lines.map(lineEnd);
  // Names are in the right margin, or at the end of a line that stops early and leaves space for its name.
  const inside = lines.map((line, i) => X(ends[i][0]) + measure.measureText(line.label).width + 16 < right);
  const heights = ends.map(([, y]) => Math.min(Math.max(Y(y), margin.top), bottom));
  const places = [...heights];
  for (const where of [true, false]) {
    const members = heights.map((_, i) => i).filter((i) => inside[i] === where);
    spread(members.map((i) => heights[i]), 15, margin.top, bottom).forEach((y, place) => { places[members[place]] = y; });
  }
  const curves = lines.map((line, i) => {
    let body = "";
    if (line.low && line.band) body += `<path class="band" d="${path(line.low)}${path([...line.high].reverse()).replace("M", "L")}Z"/>`;
    for (const points of line.single) body += `<path class="curve" ${pen(line, 0.9)} d="${path(points)}"/>`;
    body += `<path class="curve" ${pen(line, line.width * 1.15)} d="${path(line.mean)}"/>`;
    for (const points of [line.mean, ...line.single]) {
      if (points.length === 1) body += `<circle class="dot" cx="${X(points[0][0])}" cy="${Y(points[0][1])}" r="3.5"/>`;
    }
    for (const [x, y] of line.diverged) body += `<path class="curve" stroke-width="2" d="M${X(x) - 4.5} ${Y(y) - 4.5}l9 9m0 -9l-9 9"/>`;
    body = `<g clip-path="url(#${clip})">${body}</g>`;
    if (named) {
      const x = X(ends[i][0]);
      const start = inside[i] ? x + 9 : right + 14;
      if (!inside[i]) body += `<line class="leader" x1="${x + 3}" y1="${heights[i]}" x2="${start - 4}" y2="${places[i]}"/>`;
      body += `<text class="name" x="${start}" y="${places[i] + 4}">${escapeText(line.label)}</text>`;
    }
    return `<g class="run" data-line="${i}"><g ${inkOf(line)}>${body}</g></g>`;
  });
  const svg = `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${escapeText(plot.title || plot.y.label)}">
    <clipPath id="${clip}"><rect x="${margin.left - 6}" y="${margin.top - 6}" width="${right - margin.left + 12}" height="${bottom - margin.top + 12}"/></clipPath>
    ${axes}${curves.join("")}<circle class="dot mark" r="4.5" hidden/></svg>`;
  return { svg, X, Y, lines, plot, height };
}

function drawChart(figure) {
  const chart = data.figures[figure.id];
  const holder = figure.querySelector(".chart");
  const width = holder.clientWidth;
  if (!width) return;
  const columns = Math.max(1, Math.min(chart.plots.length, Math.floor(width / 300)));
  const panel = Math.floor((width - 20 * (columns - 1)) / columns);
  const visible = chart.plots.map((plot) => ({ plot, lines: plot.lines.filter((line) => shown[line.run]) })).filter((p) => p.lines.length);
  const longest = Math.max(0, ...visible.flatMap((p) => p.lines.map((line) => measure.measureText(line.label).width)));
  const named = longest < 0.28 * panel;
  const drawn = visible.map(({ plot, lines }) => drawPlot(chart, plot, lines, panel, named));
  const byLabel = new Map(visible.flatMap((p) => p.lines).map((line) => [line.label, line]));
  const legend = named ? "" : [...byLabel.values()].sort((a, b) => lineEnd(b)[1] - lineEnd(a)[1]).map((line) =>
    `<li><svg viewBox="0 0 24 8" ${inkOf(line)}><path class="curve" ${pen(line, 2)} d="M0 4H24"/></svg>${escapeText(line.label)}</li>`).join("");
  holder.innerHTML = `<div class="plots" style="grid-template-columns: repeat(${columns}, minmax(0, 1fr))">${drawn.map((d) => `<div>${d.svg}</div>`).join("")}</div>
    <ul class="legend">${legend}</ul><div class="tip" hidden></div>`;
  holder.querySelectorAll(".plots svg").forEach((svg, i) => addPointer(holder, svg, chart, drawn[i]));
}

// The nearest point of a plot to a position, in pixels.
function nearest({ X, Y, lines }, px, py) {
  let best = { distance: Infinity };
  lines.forEach((line, i) => {
    for (const points of [line.mean, ...line.single]) {
      for (const [place, [x, y]] of points.entries()) {
        const distance = Math.hypot(X(x) - px, Y(y) - py);
        if (distance < best.distance) best = { distance, i, line, x, y, place, mean: points === line.mean };
      }
    }
  });
  return best;
}

function addPointer(holder, svg, chart, drawn) {
  const tip = holder.querySelector(".tip");
  const mark = svg.querySelector(".mark");
  const clear = () => {
    tip.hidden = true;
    mark.setAttribute("hidden", "");
    holder.classList.remove("picked");
    for (const chosen of holder.querySelectorAll(".chosen")) chosen.classList.remove("chosen");
  };
  const show = (event) => {
    const box = svg.getBoundingClientRect();
    const zoom = box.width / svg.viewBox.baseVal.width;
    const found = nearest(drawn, (event.clientX - box.left) / zoom, (event.clientY - box.top) / zoom);
    clear();
    if (!found.line) return;
    const { line, x, y, place } = found;
    const format = formats[drawn.plot.y.unit];
    const range = found.mean && line.low ? `<br>range over seeds ${format(line.low[place][1])} to ${format(line.high[place][1])}` : "";
    const where = chart.x.unit === "round" ? `round ${formats.round(x)}` : formats[chart.x.unit](x);
    const what = drawn.plot.title && chart.plots.length > 1 && drawn.plot.y.unit !== "percent" ? drawn.plot.title : drawn.plot.y.label;
    tip.innerHTML = `<span ${inkOf(line)}><b>${escapeText(line.label)}</b></span><br>${where}: ${escapeText(what.replace(" (log scale)", ""))} ${format(y)}${range}`;
    tip.hidden = false;
    const [px, py] = [drawn.X(x) * zoom, drawn.Y(y) * zoom];
    mark.setAttribute("cx", drawn.X(x));
    mark.setAttribute("cy", drawn.Y(y));
    mark.setAttribute("style", `--light:${line.colours[0]};--dark:${line.colours[1]}`);
    mark.classList.add("ink");
    mark.removeAttribute("hidden");
    holder.classList.add("picked");
    svg.querySelector(`[data-line="${found.i}"]`).classList.add("chosen");
    const outer = holder.getBoundingClientRect();
    const left = box.left - outer.left + px;
    const beside = left + 14 + tip.offsetWidth > outer.width ? left - tip.offsetWidth - 14 : left + 14;
    tip.style.left = `${Math.max(0, beside)}px`;
    tip.style.top = `${Math.max(0, box.top - outer.top + py - tip.offsetHeight - 10)}px`;
  };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerdown", show);
  svg.addEventListener("pointerleave", clear);
}

function drawAll() {
  for (const figure of document.querySelectorAll("figure")) if (data.figures[figure.id]) drawChart(figure);
}

drawAll();
let drawnWidth = document.body.clientWidth;
addEventListener("resize", () => {
  if (document.body.clientWidth === drawnWidth) return;
  drawnWidth = document.body.clientWidth;
  drawAll();
});
