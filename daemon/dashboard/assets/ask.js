// The dialog before anything is changed.

import { h } from "./dom.js";
import { override } from "./api.js";

const holds = [["", "until it is released"], ["600s", "for 10 minutes"], ["1800s", "for 30 minutes"], ["14400s", "for 4 hours"]];

const texts = {
  MODE_OFF: ["Stop hedging", "Clients stop at once, calls under way included. Nothing is measured either."],
  MODE_SHADOW: ["Measure only", "Clients go on measuring what they would hedge, and send nothing."],
  MODE_ACTIVE: ["Let clients hedge", "Within the budget, as far as the controller's guards let them."],
  "": ["Release", "The configuration decides again."],
};

// ask has the user confirm a mode for a service, or for all where it is undefined,
// with a reason. done is called with what the daemon answered.
export function ask(mode, service, done) {
  const [title, text] = texts[mode];
  const dialog = document.getElementById("ask");
  const reason = h("input", { name: "reason", required: true, maxlength: 256, autocomplete: "off", placeholder: "for whoever looks later" });
  const hold = h("select", { name: "hold" }, holds.map(([value, label]) => h("option", { value }, label)));
  const error = h("p", { class: "error", role: "alert" });
  const send = async (e) => {
    e.preventDefault();
    error.textContent = "";
    try {
      const word = { reason: reason.value, author: "dashboard" };
      if (mode) word.mode = mode;
      if (mode && hold.value) word.lifetime = hold.value;
      const r = await override(service, word);
      dialog.close();
      done(r);
    } catch (err) {
      error.textContent = err.message;
    }
  };
  dialog.replaceChildren(h("form", { onsubmit: send },
    h("h2", null, title + ": " + (service || "every service")),
    h("p", null, text),
    h("label", null, "Why", reason),
    mode ? h("label", null, "How long", hold) : null,
    error,
    h("div", { class: "buttons" },
      h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
      h("button", { type: "submit", class: mode === "MODE_OFF" ? "danger" : "primary" }, title))));
  dialog.showModal();
  reason.focus();
}
