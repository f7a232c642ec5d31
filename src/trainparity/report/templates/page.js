// Draws the page's plots and makes its tables sortable. Everything shown is in the page; nothing is fetched.
"use strict";

// Told apart by the colour-blind as well (tests/report/test_palette.py); after the last, the same again in dashes.
const LINES = ["#338599", "#cc7a00", "#9900ff", "#df2046", "#7a66cc"];
const line = index => ({stroke: LINES[index % LINES.length],
  dash: index < LINES.length ? undefined : [2 + 2 * Math.floor(index / LINES.length), 3]});
const waiting = new Map(); // element -> what draws it, until it can be seen
const charts = new Set(); // what must be drawn again when the colours change

const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const short = value => value == null ? "–" : value === 0 ? "0" : Math.abs(value) >= 1e299 ? "∞"
  : Math.abs(value) >= 1e-3 && Math.abs(value) < 1e5 ? String(+value.toPrecision(4)) : value.toExponential(1);
const ZERO = -99999; // stands for the logarithm of zero
const power = (logarithm, parts = 100) => logarithm == null ? null : logarithm === ZERO ? 0 : 10 ** (logarithm / parts);
const FINE = 1000; // of the logarithm of a norm
const known = logarithm => logarithm != null && logarithm !== ZERO;
// The right norm's logarithm: kept as what it is beyond the left one's where both have one (report/data.py).
const beside = (left, right) => known(left) && known(right) ? left + right : right;

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), character => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

// What uPlot draws of a value: a line goes on over what is undefined (not recorded), and is broken by null (not on the axis).
const at = (value, log) => value == null ? undefined : log && (value <= 0 || value > 1e299) ? null : value;

// A line chart over steps, `of` which comparison; `series`: {label, values, stroke, width, dash, fill}; `band`: [upper, lower] by number.
function chart(place, {of, title, unit, steps, series, log = false, height = 190, band = null}) {
  const label = of ? `${title} of ${of}` : title;
  const heading = make("p", {class: "plot-title", "aria-hidden": "true"}, title);
  const root = make("div", {class: "plot", tabindex: "0", role: "group", "aria-label": `${label}; left and right arrow keys read values`});
  place.append(heading, root);
  const draw = () => {
    root.replaceChildren();
    const decade = tick => Math.abs(Math.log10(tick) - Math.round(Math.log10(tick))) < 1e-9;
    const spaced = ticks => { let last = 0; return ticks.map(tick => tick >= 1.4 * last ? last = tick : null); };
    const decades = (u, ticks) => !log ? ticks
      : ticks.filter(decade).length > 1 ? ticks.map(tick => decade(tick) ? tick : null) : spaced(ticks);
    const axis = {stroke: colour("--muted"), grid: {stroke: colour("--grid"), width: 1}, ticks: {show: false}, font: "12px system-ui"};
    const plot = new uPlot({
      width: Math.max(root.clientWidth, 220), height, legend: {live: true},
      cursor: {drag: {x: true, y: false}},
      scales: {x: {time: false}, y: log ? {distr: 3} : {range: (u, low, high) => low == null ? [0, 1]
        : low === high ? [low - Math.abs(low || 1) * 0.05, high + Math.abs(high || 1) * 0.05] : uPlot.rangeNum(low, high, 0.08, false)}},
      axes: [{...axis, label: "step", labelSize: 18, size: 30, labelFont: "12px system-ui", incrs: [1, 2, 5].flatMap(i => [i, 10 * i, 100 * i, 1000 * i, 1e4 * i]).sort((a, b) => a - b)},
        {...axis, grid: {...axis.grid, filter: decades}, filter: decades, label: unit, size: 62, labelSize: 18, labelFont: "12px system-ui",
          values: (u, ticks) => ticks.map(tick => tick == null ? "" : short(tick))}],
      series: [{label: "step", value: (u, value) => value == null ? "–" : String(value)},
        ...series.map(one => ({label: one.label, stroke: one.stroke || colour(one.variable), width: one.width || 1.6, dash: one.dash,
          points: {show: steps.length < 2 || (log && one.values.includes(0)), size: 4}, value: (u, value) => short(value)}))],
      bands: band ? [{series: band, fill: colour("--band")}] : [],
    }, [steps, ...series.map(one => one.values.map(value => at(value, log)))], root);
    plot.ctx.canvas.setAttribute("role", "img");
    plot.ctx.canvas.setAttribute("aria-label", label);
    root.plot = plot;
  };
  root.addEventListener("keydown", event => {
    const move = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!move) return;
    event.preventDefault();
    const index = Math.min(Math.max((root.plot.cursor.idx ?? -move) + move, 0), steps.length - 1);
    root.plot.setCursor({left: root.plot.valToPos(steps[index], "x"), top: 0});
  });
  charts.add(draw);
  draw();
  let width = root.clientWidth;
  new ResizeObserver(() => {
    if (Math.abs(root.clientWidth - width) < 2) return;
    width = root.clientWidth;
    root.plot.setSize({width: Math.max(width, 220), height});
  }).observe(root);
  return () => charts.delete(draw);
}

// Colours of distance / floor: pale to blue up to the margin, orange to dark red beyond it, grey where it is not known.
function shade(hundredths, margin) {
  if (hundredths == null) return [150, 150, 150];
  const mix = (from, to, part) => from.map((value, index) => Math.round(value + (to[index] - value) * Math.min(Math.max(part, 0), 1)));
  const limit = 100 * Math.log10(margin);
  if (hundredths > limit) return mix([240, 150, 30], [110, 10, 20], (hundredths - limit) / 600);
  return mix([226, 234, 242], [52, 122, 190], (hundredths + 200) / (limit + 200));
}

function strip(found, margin, choose) {
  const canvas = make("canvas", {role: "img", width: found.steps.length, height: found.tensors.length});
  const largest = found.ratio.flat().reduce((most, value) => Math.max(most, value ?? ZERO), ZERO);
  canvas.setAttribute("aria-label",
    `${found.kind}: ${found.tensors.length} rows over ${found.steps.length} columns of steps, at most ${short(power(largest))} times the floor`);
  canvas.style.height = `${Math.min(Math.max(found.tensors.length * 8, 48), 320)}px`;
  const context = canvas.getContext("2d");
  found.ratio.forEach((row, y) => row.forEach((value, x) => {
    context.fillStyle = `rgb(${shade(value, margin)})`;
    context.fillRect(x, y, 1, 1);
  }));
  const cell = event => {
    const box = canvas.getBoundingClientRect();
    return [Math.floor((event.clientY - box.top) / box.height * found.tensors.length), Math.floor((event.clientX - box.left) / box.width * found.steps.length)];
  };
  const read = make("span", {class: "read"});
  canvas.addEventListener("mousemove", event => {
    const [row, column] = cell(event);
    if (found.ratio[row]?.[column] !== undefined)
      read.textContent = `${found.tensors[row]}, step ${found.steps[column]}: ${short(power(found.ratio[row][column]))} ×`;
  });
  canvas.addEventListener("mouseleave", () => { read.textContent = ""; });
  canvas.addEventListener("click", event => choose(cell(event)[0]));
  const mark = make("i", {class: "mark"});
  const figure = make("figure", {class: "strip"},
    make("figcaption", {}, found.kind + (found.judged ? "" : " (not judged)"), read), make("div", {class: "cells"}, canvas, mark));
  const show = row => {
    mark.hidden = row == null;
    mark.style.top = `${100 * row / found.tensors.length}%`;
    mark.style.height = `${100 / found.tensors.length}%`;
  };
  return {figure, show};
}

function drawModel(place, model, margin) {
  drawFacts(place.querySelector(".facts"), model, place.dataset);
  if (model.strips.every(found => found.ratio.flat().every(value => value === ZERO)))
    place.querySelector(".hint").textContent = "Every distance, of every tensor at every step, is exactly 0.";
  else drawDistances(place, model, margin);
}

function drawDistances(place, model, margin) {
  const label = place.dataset.label;
  const select = make("select");
  const chosen = place.querySelector(".chosen");
  const figure = make("div", {class: "pair-of-plots"});
  const strips = model.strips.map((found, number) => strip(found, margin, row => { select.value = `${number}/${row}`; show(); }));
  model.strips.forEach((found, number) => select.append(make("optgroup", {label: found.kind},
    ...found.tensors.map((name, row) => make("option", {value: `${number}/${row}`}, `${found.kind} ${name}`)))));
  place.querySelector(".strips").append(...strips.map(one => one.figure));
  chosen.append(make("label", {}, "Tensor or layer ", select), figure);
  let drawn = [];
  const show = () => {
    const [number, row] = select.value.split("/").map(Number);
    const found = model.strips[number];
    strips.forEach((one, other) => one.show(other === number ? row : null));
    drawn.forEach(forget => forget());
    const boxes = [make("div"), make("div")];
    figure.replaceChildren(...boxes);
    const floor = found.floor[row].map(value => power(value));
    const distance = found.ratio[row].map((value, column) => value == null ? null : power(value) * floor[column]);
    const name = `${found.kind} ${found.tensors[row]}`;
    drawn = [chart(boxes[0], {
      of: label, title: name, unit: "relative L2 distance", steps: found.steps, log: true,
      band: [2, 3],
      series: [{label: "distance", values: distance, variable: "--accent", width: 2},
        {label: `floor × ${margin}`, values: floor.map(value => value * margin), variable: "--warn", dash: [4, 3]},
        {label: "floor", values: floor, variable: "--muted", dash: [2, 3]}],
    }), chart(boxes[1], {
      of: label, title: `L2 norm of ${name}`, unit: "L2 norm", steps: found.steps, log: true, series: [
        {label: place.dataset.left, values: found.left[row].map(value => power(value, FINE)), variable: "--pale", width: 5},
        {label: place.dataset.right, values: found.right[row].map((value, column) => power(beside(found.left[row][column], value), FINE)), variable: "--accent"}],
    })];
    if (distance.every(value => !value)) boxes[0].append(make("p", {class: "hint"}, "Every distance is exactly 0, which a logarithmic axis can't show."));
  };
  select.value = firstToShow(model, place.dataset.first).join("/");
  select.addEventListener("change", show);
  show();
  drawScale(place.querySelector(".scale"), margin);
}

// Returns strip and row of the first tensor beyond the margin, or of the layer that holds it; else the furthest tensor.
function firstToShow(model, first) {
  const rows = model.strips.flatMap((found, number) => found.tensors.map((name, row) =>
    ({place: [number, row], name: `${found.kind} ${name}`, judged: found.judged && row > 0, most: Math.max(...found.ratio[row].map(value => value ?? ZERO))})));
  const holds = one => first === one.name || first.startsWith(`${one.name}.`);
  return (rows.find(holds) ?? rows.filter(one => one.judged).sort((a, b) => b.most - a.most)[0] ?? rows[0]).place;
}

function drawScale(place, margin) {
  const stops = [[ZERO, "0"], [0, "the floor"], [100 * Math.log10(margin), `${margin} ×, the margin`], [100 * Math.log10(margin) + 1, "beyond"], [900, "1e9 ×"]];
  place.append(...stops.map(([value, text]) => {
    const swatch = make("i");
    swatch.style.background = `rgb(${shade(value, margin)})`;
    return make("span", {}, swatch, text);
  }));
}

function drawFacts(place, model, {label, left, right}) {
  for (const fact of model.facts) {
    const box = make("div");
    place.append(box);
    chart(box, {of: label, title: fact.name, unit: fact.name, steps: model.steps, height: 150, series: [
      {label: left, values: fact.left, variable: "--pale", width: 5}, {label: right, values: fact.right, variable: "--accent"}]});
    if (fact.difference.every(value => !value)) continue;
    if (fact.name === "samples") {
      const others = make("div");
      place.append(others);
      chart(others, {of: label, title: `samples that ${left} did not see at this step`, unit: "samples", steps: model.steps, height: 150, series: [
        {label: right, values: fact.difference, variable: "--accent"}]});
    }
    if (fact.name !== "loss") continue;
    const size = value => value == null ? null : Math.abs(value);
    const other = make("div");
    place.append(other);
    chart(other, {of: label, title: `distance of the loss from ${left}`, unit: "|difference|", steps: model.steps, log: true, height: 150, series: [
      {label: right, values: fact.difference.map(size), variable: "--accent"},
      ...(fact.band.length ? [{label: `twins of ${left}`, values: fact.band, variable: "--warn", dash: [4, 3]}] : [])]});
  }
}

function drawLosses(place, curves) {
  const lines = Object.entries(curves.runs).map(([label, values], index) =>
    ({label, values, ...line(index)}));
  const references = Object.entries(curves.references).map(([label, values]) => ({label, values, variable: "--pale", width: 6}));
  const boxes = [make("div"), make("div")];
  place.append(...boxes);
  chart(boxes[0], {title: "Loss", unit: "loss", steps: curves.steps, height: 280, series: [...references, ...lines]});
  const apart = lines.map(one => ({...one, values: curves.differences[one.label].map(value => value == null ? null : Math.abs(value))}));
  if (curves.band.length) apart.unshift({label: "twins", values: curves.band, variable: "--pale", width: 6});
  if (apart.some(one => one.values.some(value => value > 0)))
    chart(boxes[1], {title: "Distance from the reference's loss", unit: "|difference|", steps: curves.steps, log: true, height: 280, series: apart});
}

function drawRatios(place, ratios) {
  const series = Object.entries(ratios).map(([label, values], index) => ({label, values, ...line(index)}));
  const steps = [...Array(Math.max(...series.map(one => one.values.length))).keys()];
  chart(place, {title: "Speed-up of each pair of steps, timed in turns", unit: "reference / own", steps, series});
}

function sortable(table) {
  const number = text => text.startsWith("∞") ? Infinity : parseFloat(text.replaceAll(",", ""));
  table.querySelectorAll("thead th").forEach((head, column) => {
    const button = make("button", {type: "button"}, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      table.querySelectorAll("thead th").forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows].map(row => [row, row.cells[column].textContent.trim()]);
      const numeric = rows.some(([, text]) => !Number.isNaN(number(text)));
      const order = ([, a], [, b]) => numeric ? (Number.isNaN(number(a)) - Number.isNaN(number(b))) || sign * (number(a) - number(b)) || 0 : sign * a.localeCompare(b);
      table.tBodies[0].append(...rows.sort(order).map(([row]) => row));
    });
  });
}

function drawIfSeen() {
  for (const [element, draw] of waiting) {
    if (element.closest("details:not([open])")) continue;
    waiting.delete(element);
    draw();
  }
}

function openAll() {
  document.querySelectorAll("details").forEach(element => { element.open = true; });
  drawIfSeen();
}

unpack(document.getElementById("numbers").textContent).then(numbers => {
  document.querySelectorAll("table.sorted").forEach(sortable);
  document.querySelectorAll(".drill").forEach(drill => {
    const pair = numbers.pairs[drill.dataset.pair];
    drill.querySelectorAll(".model").forEach(place => waiting.set(place, () => drawModel(place, pair.models[place.dataset.model], pair.margin)));
  });
  document.querySelectorAll(".losses").forEach(place => waiting.set(place, () => drawLosses(place, numbers.curves)));
  document.querySelectorAll(".ratios").forEach(place => waiting.set(place, () => drawRatios(place, numbers.ratios)));
  document.addEventListener("toggle", drawIfSeen, true);
  addEventListener("beforeprint", openAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach(draw => draw()));
  drawIfSeen();
  document.documentElement.dataset.drawn = "yes";
});
