// One service: what it does, why, and how that came.

import { h, put, rows, row, table } from "./dom.js";
import { get } from "./api.js";
import { ask } from "./ask.js";
import { charts } from "./charts.js";
import { clock, count, dash, percent, plain, seconds, state, time } from "./format.js";

export function service(name) {
  const title = h("h1", null, name.replace(/^default\//, ""));
  const word = h("span", { class: "state" });
  const why = h("p", { class: "why" });
  const said = h("p", { class: "said", hidden: true });
  const buttons = [["MODE_ACTIVE", "On"], ["MODE_SHADOW", "Shadow"], ["MODE_OFF", "Off"], ["", "Release"]].map(([mode, label]) =>
    h("button", { type: "button", class: mode === "MODE_OFF" ? "danger" : null, onclick: () => ask(mode, name, () => slow()) }, label));
  const figures = h("section", { class: "figures", "aria-label": "now" });
  const graph = charts();
  const methods = table(methodColumns, "methods");
  const buys = h("div");
  const refused = h("div", { class: "chips" });
  const replicas = table(replicaColumns, "replicas");
  const guards = table(guardColumns, "guards");
  const clients = table(clientColumns, "clients");
  const past = table(pastColumns, "history");
  const error = h("p", { class: "error", role: "alert" });
  const section = (heading, help, ...content) => h("section", null, h("h2", null, heading), help ? h("p", { class: "quiet" }, help) : null, content);
  const element = h("div", null,
    h("nav", null, h("a", { href: "#/" }, "‹ all services")),
    h("div", { class: "head" }, h("div", null, title, word), h("div", { class: "buttons" }, buttons)),
    why, said, error, figures, graph.element,
    section("Methods", "Latency of primaries as it is without hedging, and the delay on it.", methods, buys),
    section("Not hedged, though late", "Calls that outlived the delay in the last 10 s and got no hedge, by reason.", refused),
    section("Replicas", null, replicas),
    section("Why it is so", "The controller asks these in their order; the last one decided.", guards),
    section("Clients", null, clients),
    section("What happened", null, past));

  let epoch;
  let timer;

  // slow asks for what changes slowly.
  async function slow() {
    clearTimeout(timer);
    try {
      const params = { service: name };
      const [explained, held, series, history] = await Promise.all([
        get("explain", params), get("clients", params), get("series", params), get("history", { ...params, limit: 100 })]);
      const list = explained.guards || [];
      rows(guards.body, list.map((g, i) => ({ ...g, i })), (g) => g.i + g.method, () => row(guardColumns));
      const all = (held.clients || []).flatMap((c) => (c.subscriptions || []).filter((s) => s.service === name).map((s) => ({ ...s, client: c, epoch })));
      rows(clients.body, all.slice(0, 500), (s) => s.client.id + s.client.incarnation, () => row(clientColumns));
      const entries = history.entries || [];
      rows(past.body, entries, (e) => e.at + (e.change ? e.change.method : "!"), () => row(pastColumns));
      graph.update(series.series, entries.map((e) => ({ at: new Date(e.at) / 1000, look: e.override ? "command" : e.change.method ? "delay" : "mode" })));
      put(error, "");
    } catch (err) {
      put(error, err.message);
    }
    timer = setTimeout(slow, 5000);
  }
  slow();

  return {
    element,
    services: (services) => {
      const s = (services || [])[0];
      if (!s) return;
      const st = state(s);
      put(word, st.word);
      word.className = "state " + st.look;
      put(why, (s.policy.reason || {}).text || "");
      said.hidden = !s.override;
      if (s.override) put(said, spoken(s.override));
      now(figures, s);
      rows(methods.body, s.methods || [], (m) => m.method, () => row(methodColumns));
      rows(buys, (s.methods || []).filter((m) => m.counterfactual && m.counterfactual.text), (m) => m.method, () => {
        const el = h("p", { class: "quiet" });
        el.update = (m) => put(el, `What hedging buys ${m.method}: ${m.counterfactual.text}`);
        return el;
      });
      const reasons = Object.entries(s.load.suppressed || {});
      rows(refused, reasons.length ? reasons : [["none", ""]], (x) => x[0], ([key]) => {
        const el = h("span", { class: "chip" });
        el.update = ([, n]) => put(el, n === "" ? "none" : `${plain(key, "")} ${count(n)}`);
        return el;
      });
      rows(replicas.body, s.replicas || [], (r) => r.replica, () => row(replicaColumns));
    },
    status: (s) => { epoch = s.epoch; },
    end: () => { clearTimeout(timer); graph.end(); },
  };
}

function spoken(o) {
  const what = o.mode === "MODE_UNSPECIFIED" ? "target " + percent(o.target) : plain(o.mode, "MODE_");
  return `${o.author || "An operator"} said ${what}` + (o.expires_at ? ` until ${clock(o.expires_at)}` : "") + (o.reason ? `: ${o.reason}` : ".");
}

function now(figures, s) {
  const l = s.load;
  const b = s.policy.budget || {};
  const list = [
    ["extra load", `${percent(l.extra_load)} of ${percent(s.target)}`],
    ["calls a second", count(Number(l.calls) / seconds(l.window))],
    ["outlived the delay", percent(l.eligible_rate)],
    ["hedges in 10 s", count(l.hedges)],
    ["of them won", count(l.wins)],
    ["servers cancelled", Number(l.server_attempts) ? count(l.server_cancelled) : dash],
    ["budget of a client", `${(100 * (b.ratio || 0)).toFixed(2)}%, burst ${b.burst || 0}`],
  ];
  rows(figures, list, (f) => f[0], ([label]) => {
    const value = h("b");
    const el = h("div", { class: "figure" }, value, h("span", null, label));
    el.update = ([, text]) => put(value, text);
    return el;
  });
}

const methodColumns = [
  { name: "Method", show: (m) => m.method },
  { name: "Latency, unhedged", class: "wide", help: "p50, p95, p99 and p99.9 on a scale of powers of ten; the line is the delay", show: strip },
  { name: "Delay", class: "num", show: (m) => time(seconds(m.policy.delay) || null) },
  { name: "p50", class: "num", show: (m) => time(seconds(m.p50)) },
  { name: "p99", class: "num", show: (m) => time(seconds(m.p99)) },
  { name: "p99.9", class: "num", show: (m) => time(seconds(m.p999)) },
  { name: "Extra", class: "num", show: (m) => percent(m.load.extra_load) },
  { name: "Calls/s", class: "num", show: (m) => count(Number(m.load.calls) / seconds(m.load.window)) },
  { name: "Won", class: "num", show: (m) => count(m.load.wins) },
];

// strip draws quantiles between 0.1 ms and 100 s, with the delay as a line.
function strip(m) {
  const el = h("span", { class: "strip", role: "img", "aria-label": `p50 ${time(seconds(m.p50))}, p99.9 ${time(seconds(m.p999))}, delay ${time(seconds(m.policy.delay))}` });
  const place = (s) => Math.max(0, Math.min(100, ((Math.log10(s) + 4) / 6) * 100)) + "%";
  const q = [["p50", m.p50], ["p95", m.p95], ["p99", m.p99], ["p99.9", m.p999]].filter(([, v]) => seconds(v));
  if (q.length > 1) {
    const line = h("i", { class: "range" });
    line.style.left = place(seconds(q[0][1]));
    line.style.right = `calc(100% - ${place(seconds(q[q.length - 1][1]))})`;
    el.append(line);
  }
  for (const [label, v] of q) {
    const dot = h("i", { class: "dot", title: `${label} ${time(seconds(v))}` });
    dot.style.left = place(seconds(v));
    el.append(dot);
  }
  if (seconds(m.policy.delay)) {
    const at = h("i", { class: "delay", title: `delay ${time(seconds(m.policy.delay))}` });
    at.style.left = place(seconds(m.policy.delay));
    el.append(at);
  }
  return el;
}

const replicaLooks = { serving: "on", probation: "paused", recovering: "shadow" };
const replicaColumns = [
  { name: "Replica", show: (r) => r.replica },
  { name: "State", show: (r) => {
    const s = plain(r.policy.state, "REPLICA_STATE_");
    return h("span", { class: "state " + (replicaLooks[s] || "") }, s);
  } },
  { name: "Share", class: "num", show: (r) => percent(r.policy.state === "REPLICA_STATE_SERVING" ? 1 : r.policy.share, 0) },
  { name: "Samples", class: "num", show: (r) => count(r.samples) },
  { name: "p50", class: "num", show: (r) => time(seconds(r.p50)) },
  { name: "p95", class: "num", show: (r) => time(seconds(r.p95)) },
  { name: "Evidence", class: "text", show: (r) => r.policy.reason || "" },
];

const guardColumns = [
  { name: "Guard", show: (g) => plain(g.code, "REASON_CODE_") },
  { name: "", show: (g) => (g.decided ? h("span", { class: "state on" }, "decided") : "") },
  { name: "About", show: (g) => g.method || "service" },
  { name: "What it saw", class: "text", show: (g) => g.text },
];

const clientColumns = [
  { name: "Client", show: (s) => s.client.id },
  { name: "Policy", show: (s) => {
    const [word, look] = s.nack_reason ? ["refused: " + s.nack_reason, "paused"] : !s.client.streaming ? ["gone", "off"] : s.current ? ["current", "on"] : ["behind", "shadow"];
    return h("span", { class: "state " + look }, word);
  } },
  { name: "Generation", class: "num", show: (s) => (s.generation ? s.generation.number : dash) },
  { name: "Last report", class: "num", show: (s) => (s.client.report_age ? time(seconds(s.client.report_age)) + " ago" : dash) },
  { name: "Library", show: (s) => s.client.version || "" },
];

const pastColumns = [
  { name: "When", show: (e) => clock(e.at) },
  { name: "Who", show: (e) => (e.override ? e.override.author || "an operator" : "hedged") },
  { name: "What", class: "text", show: (e) => {
    if (e.override) return e.override.mode === "MODE_UNSPECIFIED" && e.override.target === undefined ? "released" : spoken({ ...e.override, reason: "" }).replace(/\.$/, "");
    const c = e.change;
    return c.method ? `${c.method}: ${time(seconds(c.delay_before) || null)} to ${time(seconds(c.delay_after) || null)}` : "mode " + plain(c.mode, "MODE_");
  } },
  { name: "Why", class: "text", show: (e) => (e.override || e.change).reason || "" },
];
