// What the daemon says and is told.

async function call(path, options) {
  const r = await fetch("/api/v1/" + path, options);
  const body = await r.json();
  if (!r.ok) throw new Error(body.error || r.statusText);
  return body;
}

const query = (params) => new URLSearchParams(params).toString();

export const get = (path, params) => call(path + "?" + query(params || {}));

// override sets what an operator says of a service, or of all for undefined.
export function override(service, word) {
  const scope = service ? { service } : { all: true };
  return call("override", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...scope, override: word }),
  });
}

// watch calls on.services and on.status with each event, and on.link with whether
// the daemon answers. It returns a function that ends it.
export function watch(params, on) {
  const source = new EventSource("/api/v1/watch?" + query(params));
  source.addEventListener("services", (e) => on.services(JSON.parse(e.data).services));
  source.addEventListener("status", (e) => { on.link(true); on.status(JSON.parse(e.data)); });
  source.addEventListener("error", () => on.link(false)); // it connects again by itself
  return () => source.close();
}
