// Elements, kept in step with data without tearing them down.

// h makes an element: h("td", {class: "num"}, "12"). A property that begins with
// "on" is a listener; undefined, null and false are left out.
export function h(tag, props, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) el.addEventListener(name.slice(2), value);
    else el.setAttribute(name, value === true ? "" : value);
  }
  el.append(...children.flat().filter((c) => c !== undefined && c !== null && c !== false));
  return el;
}

// put replaces what is in an element where the text differs.
export function put(el, text) {
  if (el.textContent !== text) el.textContent = text;
}

// rows keeps the children of parent in step with items: one for each key, in
// their order. make returns an element with an update(item) of its own.
export function rows(parent, items, key, make) {
  const have = new Map([...parent.children].map((el) => [el.dataset.key, el]));
  let at = parent.firstElementChild;
  for (const item of items) {
    const k = key(item);
    let el = have.get(k);
    if (el) have.delete(k);
    else {
      el = make(item);
      el.dataset.key = k;
    }
    el.update(item);
    if (el === at) at = at.nextElementSibling;
    else parent.insertBefore(el, at);
  }
  for (const el of have.values()) el.remove();
}

// row makes a table row of cells, each of which a function of the item fills: it
// returns text, or an element.
export function row(cells, props) {
  const tds = cells.map((c) => h("td", { class: c.class }));
  const tr = h("tr", props, tds);
  tr.update = (item) => cells.forEach((c, i) => {
    const v = c.show(item);
    if (v instanceof Node) {
      if (!tds[i].firstChild || !tds[i].firstChild.isEqualNode(v)) tds[i].replaceChildren(v);
    } else put(tds[i], v);
  });
  return tr;
}

// table makes a table whose body rows() fills.
export function table(columns, label) {
  const body = h("tbody");
  const el = h("div", { class: "scroll" }, h("table", { "aria-label": label },
    h("thead", null, h("tr", null, columns.map((c) => h("th", { class: c.class, scope: "col", title: c.help }, c.name)))), body));
  el.body = body;
  return el;
}
