// Figures as people read them. What is not known is a dash, never a zero.

export const dash = "–";

// seconds of a protobuf duration in JSON, such as "0.0152s"; null where absent.
export function seconds(text) {
  return text === undefined || text === null ? null : parseFloat(text);
}

export function time(s) {
  if (s === null || s === undefined || Number.isNaN(s)) return dash;
  if (s === 0) return "0";
  const ms = 1000 * s;
  if (ms >= 10000) return (ms / 1000).toFixed(1) + " s";
  if (ms >= 100) return ms.toFixed(0) + " ms";
  if (ms >= 1) return ms.toFixed(1) + " ms";
  return ms.toFixed(3) + " ms";
}

export function percent(x, digits = 1) {
  return x === null || x === undefined || Number.isNaN(x) ? dash : (100 * x).toFixed(digits) + "%";
}

export function count(n) {
  n = Number(n);
  if (n >= 1e6) return (n / 1e6).toFixed(1) + " M";
  if (n >= 1e4) return (n / 1e3).toFixed(1) + " k";
  return n >= 100 || Number.isInteger(n) ? n.toFixed(0) : n.toFixed(1);
}

export function clock(text) {
  const d = new Date(text);
  return d.toDateString() === new Date().toDateString() ? d.toLocaleTimeString() : d.toLocaleString();
}

// plain turns MODE_ACTIVE or REPLICA_STATE_SERVING into active or serving.
export function plain(name, prefix) {
  return (name || "").replace(prefix, "").toLowerCase().replaceAll("_", " ");
}

// state is what a service does, in a word, and how that looks.
export function state(s) {
  const mode = plain(s.policy.mode, "MODE_");
  const reason = plain(s.policy.reason && s.policy.reason.code, "REASON_CODE_");
  if (mode === "off") return { word: "off", look: "off" };
  if (mode === "shadow") return { word: "shadow", look: "shadow" };
  switch (reason) {
    case "tracking": case "override": return { word: "hedging", look: "on" };
    case "no data": return { word: "no data yet", look: "shadow" };
    case "too few replicas": return { word: "too few replicas", look: "paused" };
    case "failing": return { word: "paused: failing", look: "paused" };
    case "freeze": return { word: "paused: everything is slow", look: "paused" };
    case "shared": return { word: "restrained: slow everywhere", look: "paused" };
  }
  return { word: reason || "hedging", look: reason ? "paused" : "on" };
}

// busiest is the method with the most calls; undefined where there is none.
export function busiest(s) {
  return (s.methods || []).reduce((a, b) => (!a || Number(b.load.calls) > Number(a.load.calls) ? b : a), undefined);
}
