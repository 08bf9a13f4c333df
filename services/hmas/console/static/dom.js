// Elements whose text is always text: nothing here takes HTML.

export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

export const set = (node, text) => { if (node.textContent !== text) node.textContent = text; };

// Numbers and instants as people read them; a missing one is a dash.
export const fixed = (digits, unit = "") => (value) =>
  typeof value === "number" ? value.toFixed(digits) + unit : "–";
export const share = (value) => typeof value === "number" && value >= 0 ? `${(100 * value).toFixed(0)} %` : "–";
export const clock = (unix_s) => new Date(1000 * unix_s).toTimeString().slice(0, 8);

// A table that keeps its rows between frames, so that focus and selection survive. `columns`: [label, cell, kind], where
// `cell(row, key)` returns text or a node, and `kind` is TEXT for what may be long, NAME for what a narrow screen may cut,
// true for numbers; `update(rows)` takes [key, row] pairs in order.
export const TEXT = "text";
export const NAME = "name";
const style_of = (kind) => kind === true ? "number" : kind || "";

export function table(caption, columns) {
  const body = el("tbody");
  const head = el("tr", {}, ...columns.map(([label, , kind]) =>
    el("th", { scope: "col", class: style_of(kind) }, label)));
  const title = el("caption", {}, caption);
  const node = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, title, el("thead", {}, head), body));
  const kept = new Map();
  function update(rows) {
    set(title, rows.length ? caption : `${caption}: none`);
    const wanted = new Set(rows.map(([key]) => key));
    for (const [key, line] of kept) if (!wanted.has(key)) { line.remove(); kept.delete(key); }
    rows.forEach(([key, row], place) => {
      let line = kept.get(key);
      if (line === undefined) {
        line = el("tr", {}, ...columns.map(([, , kind]) => el("td", { class: style_of(kind) })));
        line.dataset.key = key;
        kept.set(key, line);
      }
      columns.forEach(([, cell], index) => {
        const value = cell(row, key);
        const place_ = line.children[index];
        if (!(value instanceof Node)) set(place_, value === undefined ? "–" : String(value));
        else if (!place_.firstChild || !place_.firstChild.isEqualNode(value)) place_.replaceChildren(value);
      });
      if (body.children[place] !== line) body.insertBefore(line, body.children[place] ?? null);
    });
  }
  return { node, update };
}

// A link to a request's page; the style sheet cuts a long id, whose beginning tells it apart, and a copy has all of it.
export const request_link = (id) =>
  el("a", { class: "id", href: `/r/${encodeURIComponent(id)}`, title: id }, id);

// What can be opened below a picture.
export const folded = (label, node) => el("details", {}, el("summary", {}, label), node);

// Figures that are read at a glance: `entries` are [label, text, health].
export function figures(label) {
  const node = el("dl", { class: "stats", "aria-label": label });
  function update(entries) {
    while (node.children.length > entries.length) node.lastChild.remove();
    entries.forEach(([name, text, health], place) => {
      if (!node.children[place]) node.append(el("div", {}, el("dt"), el("dd")));
      const [term, told] = node.children[place].children;
      set(term, name);
      set(told, text);
      if (told.className !== (health ?? "")) told.className = health ?? "";
    });
  }
  return { node, update };
}

// A select whose choice stands in the address.
export function picker(label, names, chosen, choose, empty = "all") {
  const select = el("select", { "aria-label": label, onchange: () => choose(select.value) });
  function update(options, current) {
    const told = options.join("\n");
    if (select.dataset.told !== told) {
      select.dataset.told = told;
      select.replaceChildren(...options.map((name) => el("option", { value: name }, name || empty)));
    }
    if (document.activeElement !== select) select.value = current;
  }
  update(names, chosen);
  return { node: el("label", { class: "dim" }, `${label} `, select), update };
}
