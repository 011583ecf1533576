// The first screen: every service in a line.

import { h, put, rows, row, table } from "./dom.js";
import { busiest, count, dash, percent, seconds, state, time } from "./format.js";

export function overview() {
  let all = [];
  const search = h("input", { id: "search", type: "search", placeholder: "Search services ( / )", "aria-label": "Search services", oninput: () => show() });
  const only = h("select", { "aria-label": "Which services", onchange: () => show() },
    ["all", "hedging", "paused", "shadow", "off"].map((o) => h("option", { value: o }, o)));
  const figures = ["services", "hedging", "calls a second", "extra load", "hedges won"].map((name) => {
    const value = h("b", null, dash);
    return { name, value, element: h("div", { class: "figure" }, value, h("span", null, name)) };
  });
  const list = table(columns, "services");
  const empty = h("div", { class: "empty", hidden: true });
  const element = h("div", null,
    h("section", { class: "figures", "aria-label": "all services together" }, figures.map((f) => f.element)),
    h("div", { class: "tools" }, search, only), list, empty);

  function show() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const looks = { hedging: "on", paused: "paused", shadow: "shadow", off: "off" };
    const shown = all.filter((s) => words.every((w) => s.name.toLowerCase().includes(w)) &&
      (only.value === "all" || state(s).look === looks[only.value]));
    rows(list.body, shown, (s) => s.name, () => row(columns));
    list.hidden = shown.length === 0;
    empty.hidden = shown.length > 0;
    if (shown.length === 0) explain(empty, all.length);
  }

  return {
    element,
    services: (services) => {
      all = services || [];
      total(figures, all);
      show();
    },
  };
}

const columns = [
  { name: "Service", show: (s) => h("a", { href: "#/service/" + encodeURIComponent(s.name) }, s.name.replace(/^default\//, "")) },
  { name: "State", show: (s) => h("span", { class: "state " + state(s).look, title: (s.policy.reason || {}).text }, state(s).word) },
  { name: "Extra load", class: "wide", help: "Hedges per call in the last 10 s, against the target", show: load },
  { name: "Delay", class: "num", help: "After which a call is hedged, of the busiest method", show: (s) => time(delayOf(s)) },
  { name: "p99.9 unhedged", class: "num", help: "Latency without hedging, of the busiest method", show: (s) => time(unhedged(s)) },
  { name: "p99.9 now", class: "num", help: "What callers wait for, of the busiest method", show: (s) => time(hedged(s)) },
  { name: "Calls/s", class: "num", show: (s) => count(rate(s.load)) },
  { name: "Won", class: "num", help: "Calls that a hedge answered first, in the last 10 s", show: (s) => count(s.load.wins) },
  { name: "Replicas", class: "num", show: replicas },
  { name: "Clients", class: "num", show: (s) => String(s.clients) },
];

function delayOf(s) {
  const m = busiest(s);
  const d = m ? seconds(m.policy.delay) : null;
  return d || null;
}

// unhedged is p99.9 without hedging: as measured on calls that chance chose, where
// enough were; else as the cancelled attempts tell.
function unhedged(s) {
  const m = busiest(s);
  const measured = m && m.counterfactual && m.counterfactual.p999;
  return seconds(measured ? measured.value : m && m.p999);
}

// hedged is p99.9 as callers wait for it.
function hedged(s) {
  const m = busiest(s);
  return seconds(m && m.counterfactual && m.counterfactual.hedged_p999);
}

const rate = (l) => Number(l.calls) / seconds(l.window);

function replicas(s) {
  const out = (s.replicas || []).filter((r) => r.policy.state !== "REPLICA_STATE_SERVING").length;
  const n = (s.replicas || []).length;
  return out ? h("span", { class: "state paused" }, `${n - out} of ${n}`) : String(n);
}

// load is a bar of the measured extra load; the mark is the target.
function load(s) {
  const x = s.load.extra_load;
  const share = x === undefined || x === null ? 0 : Math.min(x / s.target, 1.5) / 1.5;
  const bar = h("span", { class: "bar" + (x > s.target ? " over" : ""), role: "img", "aria-label": `${percent(x)} of ${percent(s.target)}` });
  bar.style.setProperty("--share", (100 * share).toFixed(1) + "%");
  return h("span", { class: "load" }, bar, h("span", { class: "num" }, `${percent(x)} of ${percent(s.target)}`));
}

function total(figures, all) {
  const sum = (f) => all.reduce((n, s) => n + f(s), 0);
  const safe = sum((s) => Number(s.load.safe));
  const values = {
    services: String(all.length),
    hedging: String(all.filter((s) => state(s).look === "on").length),
    "calls a second": count(sum((s) => rate(s.load))),
    "extra load": safe ? percent(sum((s) => Number(s.load.hedges)) / safe) : dash,
    "hedges won": count(sum((s) => Number(s.load.wins))),
  };
  for (const f of figures) put(f.value, values[f.name]);
}

function explain(empty, known) {
  if (empty.dataset.for === String(known > 0)) return;
  empty.dataset.for = String(known > 0);
  empty.replaceChildren(...(known ? [h("p", null, "No service matches.")] : [
    h("h2", null, "No services yet"),
    h("p", null, "A service appears with the first report of a client. To see some at once, run the demo:"),
    h("pre", null, "hedgectl demo"),
    h("p", null, "or subscribe a client of your own: the README shows how in three lines of Go."),
  ]));
}
