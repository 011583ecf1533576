// Charts over the last hour, drawn by uPlot.

/* global uPlot */
import { h } from "./dom.js";
import { percent, time } from "./format.js";

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// charts makes an element of charts with a common cursor: update(series, marks)
// draws what GetSeries tells, and each mark, {at, look: command, mode or delay}; end
// frees it.
export function charts() {
  const element = h("div", { class: "charts" });
  let drawn = [], last = null, marks = [];

  function draw() {
    for (const u of drawn) u.destroy();
    element.replaceChildren();
    if (!last) return;
    drawn = specs(last).map((spec) => plot(element, spec, () => marks));
    fill();
  }

  function fill() {
    specs(last).forEach((spec, i) => drawn[i].setData(spec.data));
  }

  const resized = new ResizeObserver(() => {
    for (const u of drawn) u.setSize({ width: u.root.parentElement.clientWidth, height: height });
  });
  resized.observe(element);
  const themed = () => draw();
  addEventListener("theme", themed);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", themed);

  return {
    element,
    update: (series, changes) => {
      const names = (s) => Object.keys(s.methods || {}).join();
      const fresh = !last || names(last) !== names(series);
      last = series;
      marks = changes;
      if (fresh) draw();
      else fill();
    },
    end: () => {
      resized.disconnect();
      removeEventListener("theme", themed);
      dark.removeEventListener("change", themed);
      for (const u of drawn) u.destroy();
    },
  };
}

const height = 190;
const colours = ["--c1", "--c2", "--c3", "--c4", "--c5"];
const numbers = (list) => (list || []).map((x) => { const n = Number(x); return Number.isNaN(n) ? null : n; });

// specs are the charts: what they show and how figures read.
function specs(s) {
  const at = numbers(s.at_unix);
  const methods = Object.entries(s.methods || {}).sort().slice(0, colours.length);
  const lines = methods.flatMap(([name, m], i) => [
    { label: short(name) + " delay", stroke: css(colours[i]), width: 2, data: numbers(m.delay_seconds) },
    { label: "p99.9 unhedged", stroke: css(colours[i]), width: 1, dash: [4, 4], data: numbers(m.p999_seconds) },
  ]);
  return [
    chart("Extra load against target", at, (x) => percent(x), [
      { label: "extra load", stroke: css("--c1"), width: 2, fill: css("--c1-fill"), data: numbers(s.extra_load) },
      { label: "outlived the delay", stroke: css("--c3"), width: 1, data: numbers(s.eligible_rate) },
      { label: "target", stroke: css("--danger"), width: 1, dash: [6, 4], data: numbers(s.target) },
    ]),
    chart("Delay and tail", at, time, lines, true),
    chart("Calls a second", at, (x) => (x === null ? "–" : x.toFixed(0)), [
      { label: "calls", stroke: css("--c2"), width: 2, fill: css("--c2-fill"), data: numbers(s.calls_per_second) },
    ]),
  ];
}

const short = (name) => name.slice(name.lastIndexOf("/") + 1);

function chart(title, at, show, lines, log) {
  return { title, show, log, lines, data: [at, ...lines.map((l) => l.data)] };
}

function plot(parent, spec, marks) {
  const box = h("figure", null, h("figcaption", null, spec.title));
  parent.append(box);
  const grid = { stroke: css("--line"), width: 1 };
  const axis = { stroke: css("--quiet"), grid, ticks: grid, font: "12px system-ui, sans-serif" };
  return new uPlot({
    width: box.clientWidth,
    height,
    cursor: { sync: { key: "hour" }, points: { size: 6 } },
    scales: spec.log ? { y: { distr: 3 } } : { y: { range: (u, low, high) => [0, high > 0 ? 1.15 * high : 1] } },
    axes: [axis, { ...axis, grid: { ...grid, show: !spec.log }, size: 68, values: (u, ticks) => ticks.map((v) => (v === null ? "" : spec.show(v))) }],
    series: [{ value: (u, v) => (v === null ? "–" : new Date(1000 * v).toLocaleTimeString()) },
      ...spec.lines.map((l) => ({ label: l.label, stroke: l.stroke, width: l.width, dash: l.dash, fill: l.fill, spanGaps: false, points: { show: false }, value: (u, v) => spec.show(v) }))],
    hooks: { draw: [(u) => drawMarks(u, marks())] },
  }, spec.data, box);
}

// drawMarks draws a line where an operator commanded something or the mode changed,
// and a tick where a delay did.
function drawMarks(u, marks) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  for (const m of marks) {
    const x = Math.round(u.valToPos(m.at, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    const long = m.look !== "delay";
    ctx.strokeStyle = css(m.look === "command" ? "--danger" : "--quiet");
    ctx.setLineDash(long ? [2, 3] : []);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top + bbox.height - (long ? bbox.height : 6 * devicePixelRatio));
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}
