// The page: one view at a time, by the address's fragment, fed by one stream of
// events. overview.js and service.js are the views; each has an element, and
// takes services(list); service.js takes status(s), too, and has an end().

import { put } from "./dom.js";
import { watch } from "./api.js";
import { ask } from "./ask.js";
import { overview } from "./overview.js";
import { service } from "./service.js";

const main = document.getElementById("main");
const link = document.getElementById("link");
const banner = document.getElementById("banner");

let end = () => {};

function show() {
  end();
  const name = decodeURIComponent(location.hash.replace(/^#\/service\//, ""));
  const one = location.hash.startsWith("#/service/");
  const view = one ? service(name) : overview();
  main.replaceChildren(view.element);
  document.title = one ? name + " · hedged" : "hedged";
  const stop = watch(one ? { service: name } : {}, {
    services: view.services,
    status: (s) => { warn(s); if (view.status) view.status(s); },
    link: (up) => {
      put(link, up ? "live" : "the daemon does not answer; trying again");
      link.classList.toggle("down", !up);
    },
  });
  end = () => { stop(); if (view.end) view.end(); };
}

// warn says what an operator must know wherever he looks.
function warn(s) {
  const lines = [];
  if (s.storage_error) lines.push("State cannot be saved, going on from memory: " + s.storage_error);
  if (s.config_error) lines.push("The configuration file is refused, the one before stays in force: " + s.config_error);
  const o = s.all_override;
  if (o && o.mode === "MODE_OFF") lines.push("Hedging is stopped for every service" + (o.reason ? ": " + o.reason : "") + ".");
  put(banner, lines.join("\n"));
  banner.hidden = lines.length === 0;
  const stopped = o && o.mode === "MODE_OFF";
  const button = document.getElementById("stop-all");
  put(button, stopped ? "Release all" : "Stop all hedging");
  button.dataset.mode = stopped ? "" : "MODE_OFF";
  button.classList.toggle("danger", !stopped);
}

document.getElementById("stop-all").addEventListener("click", (e) => ask(e.target.dataset.mode ?? "MODE_OFF", undefined, () => {}));

const themes = ["system", "light", "dark"];
const themeButton = document.getElementById("theme");

function theme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  put(themeButton, name);
  localStorage.setItem("theme", name);
  dispatchEvent(new Event("theme"));
}

themeButton.addEventListener("click", () => theme(themes[(themes.indexOf(localStorage.getItem("theme") || "system") + 1) % themes.length]));
theme(themes.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "system");

addEventListener("hashchange", show);
addEventListener("keydown", (e) => {
  if (e.target.closest("input, select, dialog")) return;
  const search = document.getElementById("search");
  if (e.key === "/" && search) { e.preventDefault(); search.focus(); }
  if (e.key === "Escape" && location.hash.length > 2) location.hash = "#/";
});
show();
