// Rows, filters, tables and their origins. A row has one value for each column.

const COLUMNS = DATA.columns, PLACE = Object.fromEntries(COLUMNS.map((column, k) => [column.name, k]));
const FIRST = ["bounded by", "time, us", "speed-up", "TFLOP/s", "DRAM, MB", "link, MB"];
const TESTS = {
  "is": (a, b) => String(a) === b,
  "is not": (a, b) => String(a) !== b,
  "contains": (a, b) => String(a).toLowerCase().includes(b.toLowerCase()),
  "at least": (a, b) => typeof a === "number" && a >= Number(b),
  "at most": (a, b) => typeof a === "number" && a <= Number(b),
};
const CHOSEN_AT_FIRST = 12;

const tables = {
  filters: [],
  columns: new Set(COLUMNS.filter(c => (c.figure ? FIRST.includes(c.name) : c.differs && c.listed && c.name !== "kind")).map(c => c.name)),
  chosen: new Set(),
  sorted: { name: null, down: false },
};

function valueOf(row, name) { return row.values[PLACE[name]]; }

function columnOf(name) { return COLUMNS[PLACE[name]]; }

function shownRows() {
  const rows = DATA.rows.filter(row => tables.filters.every(f => TESTS[f.test](valueOf(row, f.name) ?? "", f.value)));
  const { name, down } = tables.sorted;
  if (name === null) return rows;
  const key = row => (name === "row" ? row.label : valueOf(row, name));
  const order = (a, b) => (a === null) - (b === null) || (typeof a === "number" ? a - b : String(a).localeCompare(String(b)));
  return [...rows].sort((a, b) => order(key(a), key(b)) * (down ? -1 : 1));
}

function chosenRows() { return shownRows().filter(row => tables.chosen.has(row)); }

function shownColumns() { return COLUMNS.filter(column => tables.columns.has(column.name)); }

function cellText(value) { return value === null || value === undefined ? "" : short(value); }

// The place of a value in the archive, with the name of this row.
function placeOf(row, column) {
  return column.place.replaceAll("CONFIGURATION", row.kind === "configuration" ? valueOf(row, "simulation") : "*");
}

function originOf(row, column) {
  return column.meaning + "\n" + row.origin.file + ", run " + row.origin.run + ": " + placeOf(row, column);
}

function cell(row, column) {
  const value = row.values[PLACE[column.name]];
  return make("td", { className: typeof value === "number" ? "number" : "", title: originOf(row, column) }, cellText(value));
}

function drawRows() {
  const columns = shownColumns(), rows = shownRows();
  const head = (name, text, title) => {
    const { name: by, down } = tables.sorted, arrow = by === name ? (down ? " \u25be" : " \u25b4") : "";
    const button = make("button", { type: "button", title }, text + arrow);
    button.dataset.column = name;
    button.addEventListener("click", () => {
      tables.sorted = { name, down: by === name && !down };
      refresh();
      [...document.querySelectorAll("#rows th button")].find(b => b.dataset.column === name).focus();
    });
    const cell = make("th", { scope: "col" }, button);
    if (by === name) cell.setAttribute("aria-sort", down ? "descending" : "ascending");
    return cell;
  };
  const line = row => {
    const box = make("input", { type: "checkbox", checked: tables.chosen.has(row) });
    box.setAttribute("aria-label", "Choose " + row.label);
    box.addEventListener("change", () => { if (box.checked) tables.chosen.add(row); else tables.chosen.delete(row); refresh(false); });
    const open = make("button", { type: "button", title: "Where this row comes from" }, "?");
    open.setAttribute("aria-label", "Origin of " + row.label);
    open.addEventListener("click", () => showOrigin(row, open));
    const name = make("td", {}, row.label), element = make("tr", {}, make("td", {}, box, " ", open), name, ...columns.map(c => cell(row, c)));
    element.setAttribute("aria-selected", String(tables.chosen.has(row)));
    box.addEventListener("change", () => element.setAttribute("aria-selected", String(box.checked)));
    return element;
  };
  byId("rows").replaceChildren(
    make("thead", {}, make("tr", {}, make("th", {}), head("row", "row", "Its fields that differ"),
      ...columns.map(c => head(c.name, c.name, c.meaning)))),
    make("tbody", {}, ...rows.map(line)));
  byId("count").textContent = rows.length + " of " + DATA.rows.length + " rows shown, " + chosenRows().length + " chosen"
    + (DATA.failed.length ? "; " + DATA.failed.length + " points of studies failed" : "");
}

// The panel of a row. `opener` is the button that gets the focus back.
function showOrigin(row, opener) {
  const panel = byId("origin"), { file, run, program, code, command } = row.origin;
  const lines = [["row", row.label], ["file", file + ", run " + run], ["made by", program + (code ? ", code " + code.slice(0, 12) : "")]];
  if (command) lines.push(["made again by", command]);
  lines.push(["values of the machine", Object.entries(row.kinds).map(([kind, count]) => count + " " + kind).join(", ")]);
  const texts = lines.map(([name, text]) => make("p", {}, make("strong", {}, name + ": "), text));
  const machine = Object.entries(row.machine).map(([name, [value, kind, source]]) =>
    make("tr", {}, ...[name, value, kind, source].map(text => make("td", {}, cellText(text)))));
  const shown = shownColumns().filter(column => valueOf(row, column.name) !== null).map(column =>
    make("tr", {}, ...[column.name, valueOf(row, column.name), placeOf(row, column)].map(text => make("td", {}, cellText(text)))));
  const close = make("button", { type: "button" }, "Close");
  const leave = () => { panel.hidden = true; opener.focus(); };
  close.addEventListener("click", leave);
  panel.onkeydown = event => { if (event.key === "Escape") leave(); };
  panel.replaceChildren(close, ...texts, make("p", {}, "Its values, and their places in the file:"), make("table", {}, make("tbody", {}, ...shown)),
    ...(machine.length ? [make("p", {}, "Values of the machine that differ between rows:"), make("table", {}, make("tbody", {}, ...machine))] : []));
  panel.hidden = false;
  panel.scrollIntoView({ block: "nearest" });
  close.focus();
}

// A browser does not scroll to the end of a heading that stands still.
byId("rows").addEventListener("focusin", event => event.target.scrollIntoView({ block: "nearest", inline: "nearest" }));

// ---- filters

function drawFilters() {
  byId("chips").replaceChildren(...tables.filters.map((filter, k) => {
    const chip = make("button", { type: "button", className: "chip" }, filter.name + " " + filter.test + " " + filter.value + " \u00d7");
    chip.setAttribute("aria-label", "Remove: " + filter.name + " " + filter.test + " " + filter.value);
    chip.addEventListener("click", () => {
      tables.filters.splice(k, 1);
      refresh();
      (byId("chips").children[Math.min(k, tables.filters.length - 1)] ?? byId("filter-value")).focus();
    });
    return chip;
  }));
}

function offerValues() {
  const values = [...new Set(DATA.rows.map(row => valueOf(row, byId("filter-column").value)))].filter(value => value !== null);
  byId("filter-values").replaceChildren(...values.slice(0, 200).map(value => make("option", { value: String(value) })));
}

function setUpFilters() {
  fill(byId("filter-column"), COLUMNS.filter(c => c.differs).map(c => c.name));
  fill(byId("filter-test"), Object.keys(TESTS));
  byId("filter-column").addEventListener("change", offerValues);
  byId("filter").addEventListener("submit", event => {
    event.preventDefault();
    const filter = { name: byId("filter-column").value, test: byId("filter-test").value, value: byId("filter-value").value };
    if (filter.name) tables.filters.push(filter);
    refresh();
  });
  offerValues();
  byId("column-boxes").replaceChildren(...COLUMNS.map(column => {
    const box = make("input", { type: "checkbox", checked: tables.columns.has(column.name) });
    box.addEventListener("change", () => {
      if (box.checked) tables.columns.add(column.name); else tables.columns.delete(column.name);
      drawRows();
    });
    return make("label", { title: column.meaning }, box, " " + column.name);
  }));
  byId("columns").addEventListener("keydown", event => {
    if (event.key !== "Escape") return;
    byId("columns").open = false;
    byId("columns").querySelector("summary").focus();
  });
  byId("choose-all").addEventListener("click", () => { shownRows().forEach(row => tables.chosen.add(row)); refresh(); });
  byId("choose-none").addEventListener("click", () => { tables.chosen.clear(); refresh(); });
}

function fill(select, names, chosen) {
  select.replaceChildren(...names.map(name => make("option", { value: name }, name || "none")));
  if (chosen !== undefined && names.includes(chosen)) select.value = chosen;
}

// ---- comparison of two rows

function compared() {
  const [a, b] = ["compare-a", "compare-b"].map(id => DATA.rows[Number(byId(id).value)]);
  const found = [];
  COLUMNS.forEach((column, k) => {
    const [x, y] = [a.values[k], b.values[k]];
    if (x === null && y === null) return;
    if (!column.figure && x === y) return;
    const both = typeof x === "number" && typeof y === "number";
    found.push({ column, a: x, b: y, difference: both ? y - x : null, ratio: both && x !== 0 ? y / x : null });
  });
  return { a, b, found };
}

function drawCompare() {
  const { a, b, found } = compared();
  const body = found.map(({ column, a: x, b: y, difference, ratio }) => make("tr", {}, make("td", { title: column.meaning }, column.name),
    ...[[a, x], [b, y]].map(([row, value]) => make("td", { className: typeof value === "number" ? "number" : "", title: originOf(row, column) }, cellText(value))),
    ...[difference, ratio].map(value => make("td", { className: "number" }, cellText(value)))));
  byId("compare").replaceChildren(
    make("thead", {}, make("tr", {}, ...["", "A", "B", "B - A", "B / A"].map(text => make("th", { scope: "col" }, text)))),
    make("tbody", {}, ...body));
}

function setUpCompare() {
  const name = DATA.rows.map((row, k) => make("option", { value: k }, row.label));
  byId("compare-a").replaceChildren(...name);
  byId("compare-b").replaceChildren(...name.map(option => option.cloneNode(true)));
  const [first, second] = chosenRows();
  byId("compare-a").value = DATA.rows.indexOf(first);
  byId("compare-b").value = DATA.rows.indexOf(second ?? first);
  for (const id of ["compare-a", "compare-b"]) byId(id).addEventListener("change", drawCompare);
}

// ---- CSV

function csv(lines) {
  const quoted = value => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  };
  return lines.map(line => line.map(quoted).join(",")).join("\n") + "\n";
}

async function copy(button, text) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make("textarea", { value: text });
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
    button.focus();
  }
  const label = button.textContent;
  button.dataset.copied = text;
  button.textContent = done ? "Copied" : "Cannot copy here";
  setTimeout(() => { button.textContent = label; }, 1500);
}

function setUpCopies() {
  const put = (id, lines) => byId(id).addEventListener("click", () => copy(byId(id), csv(lines())));
  put("copy-rows", () => [["row", "file", "run", ...shownColumns().map(c => c.name)],
    ...shownRows().map(row => [row.label, row.origin.file, row.origin.run, ...shownColumns().map(c => valueOf(row, c.name))])]);
  put("copy-bars", () => [["row", "kind", "part", "value"], ...chosenRows().flatMap(row => [
    ...Object.entries(row.times).map(([part, value]) => [row.label, "time, us", part, value]),
    ...Object.entries(row.traffic).map(([part, value]) => [row.label, "DRAM, MB", part, value])])]);
  put("copy-compare", () => {
    const { a, b, found } = compared();
    return [["column", a.label, b.label, "B - A", "B / A"], ...found.map(f => [f.column.name, f.a, f.b, f.difference, f.ratio])];
  });
  put("copy-sensitivity", () => [["field", "from", "to", "cases", "change of " + byId("study-y").value + ", %", "least, %", "most, %"],
    ...sensitivity().map(s => [s.name, s.from, s.to, s.cases, s.median, s.least, s.most])]);
  put("copy-front", () => [["row", byId("pareto-x").value, byId("pareto-y").value], ...front().map(p => [p.row.label, p.x, p.y])]);
}
