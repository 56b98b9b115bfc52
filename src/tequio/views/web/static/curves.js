"use strict";
// Learning curves as SVG: one line a run, told apart by colour and by dashes, with the values under the pointer.
const SVG = "http://www.w3.org/2000/svg", HEIGHT = 340, TOP = 14, RIGHT = 18, BOTTOM = 44, LEFT = 62, MOST_TABLE_ROWS = 60;

function make(name, attributes, parent, text) {
  const element = document.createElementNS(SVG, name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  if (parent) parent.appendChild(element);
  return element;
}
function short(value) {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  if (size >= 1e9) return +(value / 1e9).toPrecision(3) + " G";
  if (size >= 1e6) return +(value / 1e6).toPrecision(3) + " M";
  if (size >= 1e4) return +(value / 1e3).toPrecision(3) + " k";
  return String(+value.toPrecision(4));
}
function ticks(low, high, count) {
  const rough = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(factor => factor * power).find(size => size >= rough);
  const found = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-9; place++) found.push(place * step);
  return found;
}

class Chart {
  constructor(place) {
    this.place = place;
    this.series = JSON.parse(place.querySelector("script").textContent);
    // Runs of one group share a colour; dashes tell them apart, and groups whose colours repeat.
    const groups = [...new Set(this.series.map(one => one.group || one.label))], seen = new Map();
    for (const one of this.series) {
      const group = one.group || one.label, place = groups.indexOf(group), before = seen.get(group) || 0;
      one.look = [`c${place % 8}`, `d${(one.group ? before : place) % 4}`];
      seen.set(group, before + 1);
    }
    this.metric = place.querySelector("[data-choice=metric]");
    this.axis = place.querySelector("[data-choice=axis]");
    this.plot = place.querySelector(".plot");
    this.readout = place.querySelector(".readout");
    for (const select of [this.metric, this.axis]) select.addEventListener("change", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.plot);
    place.querySelector(".numbers").addEventListener("toggle", () => this.tabulate());
  }
  points(one) {
    const along = one.columns[this.axis.value] || [], values = one.columns[this.metric.value] || [], found = [];
    values.forEach((value, place) => { if (value !== null && along[place] !== null && along[place] !== undefined) found.push([along[place], value]); });
    return found;
  }
  draw() {
    const width = Math.max(this.plot.clientWidth, 260), lines = this.series.map(one => this.points(one)), all = lines.flat();
    this.lines = lines;
    const svg = make("svg", {viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", tabindex: 0, "aria-label": this.told(lines)});
    if (all.length) {
      this.scale(all, width);
      this.frame(svg, width);
      lines.forEach((line, index) => this.line(svg, line, index));
      this.cursor = make("line", {class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden"}, svg);
      svg.addEventListener("pointermove", event => this.read(this.value(event.offsetX / svg.clientWidth * width)));
      svg.addEventListener("pointerleave", () => this.unread());
      svg.addEventListener("keydown", event => this.step(event));
    } else make("text", {x: width / 2, y: HEIGHT / 2, "text-anchor": "middle"}, svg, "no values yet");
    const focused = this.plot.contains(document.activeElement);
    this.plot.replaceChildren(svg);
    if (focused) svg.focus();
    this.name();
    this.tabulate();
  }
  told(lines) {
    const last = lines.map((line, index) => line.length ? `${this.series[index].label} ends at ${short(line[line.length - 1][1])}` : "").filter(Boolean);
    return `${this.metric.value} along ${this.axis.value}: ${last.join(", ") || "no values yet"}`;
  }
  scale(all, width) {
    let [low, high] = [Math.min(...all.map(point => point[1])), Math.max(...all.map(point => point[1]))];
    if (low === high) [low, high] = [low - Math.abs(low || 1) * .1, high + Math.abs(high || 1) * .1];
    let [first, last] = [Math.min(...all.map(point => point[0])), Math.max(...all.map(point => point[0]))];
    if (first === last) [first, last] = [first - 1, last + 1];
    const pad = (high - low) * .05;
    [this.low, this.high, this.first, this.last] = [low - pad, high + pad, first, last];
    this.x = value => LEFT + (value - first) / (last - first) * (width - LEFT - RIGHT);
    this.y = value => HEIGHT - BOTTOM - (value - this.low) / (this.high - this.low) * (HEIGHT - TOP - BOTTOM);
    this.value = place => first + (place - LEFT) / (width - LEFT - RIGHT) * (last - first);
  }
  frame(svg, width) {
    for (const tick of ticks(this.low, this.high, 8)) {
      make("line", {class: "grid", x1: LEFT, x2: width - RIGHT, y1: this.y(tick), y2: this.y(tick)}, svg);
      make("text", {x: LEFT - 8, y: this.y(tick) + 4, "text-anchor": "end"}, svg, short(tick));
    }
    for (const tick of ticks(this.first, this.last, Math.max(3, Math.min(10, width / 90)))) {
      if (this.axis.value === "round" && tick % 1) continue;
      make("line", {class: "axis", x1: this.x(tick), x2: this.x(tick), y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 5}, svg);
      make("text", {x: this.x(tick), y: HEIGHT - BOTTOM + 20, "text-anchor": "middle"}, svg, short(tick));
    }
    make("line", {class: "axis", x1: LEFT, x2: width - RIGHT, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM}, svg);
    make("text", {x: (LEFT + width - RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle"}, svg, this.axis.selectedOptions[0].textContent);
  }
  line(svg, points, index) {
    if (!points.length) return;
    const path = points.map(([x, y], place) => `${place ? "L" : "M"}${this.x(x).toFixed(1)},${this.y(y).toFixed(1)}`).join("");
    make("path", {d: path, class: `line ${this.series[index].look.join(" ")}`}, svg);
    const [x, y] = points[points.length - 1];
    make("circle", {cx: this.x(x), cy: this.y(y), r: 3.5, class: `dot ${this.series[index].look[0]}`}, svg);
  }
  name() {
    const items = this.series.map((one, index) => {
      const item = document.createElement("li"), sample = make("svg", {viewBox: "0 0 34 12", "aria-hidden": true});
      make("path", {d: "M1,6H33", class: `line ${one.look.join(" ")}`}, sample);
      const line = this.lines[index];
      item.append(sample, `${one.label}${line.length ? ` ${short(line[line.length - 1][1])}` : ""}`);
      return item;
    });
    this.place.querySelector(".legend").replaceChildren(...items);
  }
  read(value) {
    const near = this.lines.map(line => line.reduce((best, point) => best && Math.abs(best[0] - value) <= Math.abs(point[0] - value) ? best : point, null));
    const place = near.filter(Boolean).reduce((best, point) => best !== null && Math.abs(best - value) <= Math.abs(point[0] - value) ? best : point[0], null);
    if (place === null) return;
    this.at = place;
    this.cursor.setAttribute("x1", this.x(place)); this.cursor.setAttribute("x2", this.x(place)); this.cursor.setAttribute("visibility", "visible");
    const told = near.map((point, index) => point && point[0] === place ? `${this.series[index].label} ${short(point[1])}` : "").filter(Boolean);
    this.readout.textContent = `${this.axis.value} ${short(place)}: ${told.join(", ")}`;
  }
  unread() { this.cursor.setAttribute("visibility", "hidden"); this.readout.textContent = ""; this.at = undefined; }
  step(event) {
    const way = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (event.key === "Escape") this.unread();
    if (!way) return;
    event.preventDefault();
    const places = [...new Set(this.lines.flat().map(point => point[0]))].sort((a, b) => a - b);
    const now = this.at === undefined ? (way > 0 ? -1 : places.length) : places.indexOf(this.at);
    this.read(places[Math.max(0, Math.min(places.length - 1, now + way))]);
  }
  tabulate() {
    const details = this.place.querySelector(".numbers");
    if (!details.open || !this.lines) return;
    const places = [...new Set(this.lines.flat().map(point => point[0]))].sort((a, b) => a - b);
    const step = Math.ceil(places.length / MOST_TABLE_ROWS), table = document.createElement("table"), maps = this.lines.map(line => new Map(line));
    const row = (cells, tag) => { const line = document.createElement("tr"); cells.forEach((text, index) => { const cell = document.createElement(index && tag !== "th" ? "td" : "th"); cell.textContent = text; line.append(cell); }); return line; };
    const head = table.createTHead(), body = table.createTBody();
    head.append(row([this.axis.selectedOptions[0].textContent, ...this.series.map(one => one.label)], "th"));
    body.append(...places.filter((_, index) => index % step === 0 || index === places.length - 1).map(place => row([short(place), ...maps.map(map => short(map.get(place)))])));
    details.querySelector(".scroll").replaceChildren(table);
  }
  grow(rounds) {
    const columns = this.series[0].columns, add = (name, value) => {
      if (!columns[name]) { columns[name] = Array(columns.round.length - 1).fill(null); if (name.includes(".")) this.offer(name); }
      columns[name].push(value);
    };
    for (const row of rounds) {
      columns.round = columns.round || [];
      if (columns.round.length && row.round <= columns.round[columns.round.length - 1]) continue;
      const before = name => (columns[name] && columns[name][columns[name].length - 1]) || 0;
      const sums = {seconds: before("seconds") + (row.seconds || 0), bytes: before("bytes") + (row.bytes_up || 0) + (row.bytes_down || 0)};
      columns.round.push(row.round);
      for (const name in sums) add(name, sums[name]);
      for (const name in row) if (name.includes(".")) add(name, row[name]);
      for (const name in columns) while (columns[name].length < columns.round.length) columns[name].push(null);
    }
    this.draw();
  }
  offer(name) {
    if ([...this.metric.options].some(option => option.value === name)) return;
    this.metric.add(new Option(name, name));
    if (name.startsWith("test.") && !this.chosen && name !== "test.loss") { this.metric.value = name; this.chosen = true; }
  }
}
const charts = Object.fromEntries([...document.querySelectorAll(".chart")].map(place => [place.id, new Chart(place)]));
