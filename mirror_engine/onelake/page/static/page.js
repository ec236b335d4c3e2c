"use strict";
// Shows the data of this address and keeps it up to date. What a publisher wrote becomes text nodes, never HTML.

const REFRESH = 2000; // milliseconds between two requests, or four times as long as one takes
const MAX_TABLES = 250; // of one mirrored database, if not all are asked for
const STATES = ["blocked", "halted", "unlisted", "behind", "loading", "deleted", "unconfigured", "empty", "caught_up"];
const URGENCIES = ["stuck", "busy", "idle", "well"];
const SORTS = { // by column; `falling`: the largest first
  table: { heading: "Table", value: (table) => table.table.toLowerCase() },
  state: { heading: "State", value: (table) => URGENCIES.indexOf(table.urgency) },
  lag: { heading: "Pending", value: (table) => table.pending_since ?? "~" },
  rows: { heading: "Rows", value: (table) => table.row_count ?? 0, falling: true, numeric: true },
  commit: { heading: "Last commit", value: (table) => table.last_commit_at ?? "", falling: true, extra: true },
};
const SEVERITIES = { error: "error", warning: "warning", info: "note" };
const FILE_TONES = { rejected: "stuck", pending: "busy", applied: "well" };

const main = document.querySelector("main");
const live = document.getElementById("live");
let data = null;
let etag = "";
let timer = 0;

// An element; children may be lists, and empty ones are left out.
function h(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) if (value || value === 0) element.setAttribute(key, value);
  element.append(...children.flat(Infinity).filter((child) => child || child === 0));
  return element;
}

// Makes a node equal to a fresh one and leaves all in it that is equal already, with its focus and selection.
function update(shown, fresh) {
  if (shown.isEqualNode(fresh)) return;
  if (shown.nodeType !== Node.ELEMENT_NODE || shown.nodeName !== fresh.nodeName) {
    shown.replaceWith(fresh);
    return;
  }
  for (const name of shown.getAttributeNames()) if (!fresh.hasAttribute(name)) shown.removeAttribute(name);
  for (const name of fresh.getAttributeNames()) {
    if (shown.getAttribute(name) !== fresh.getAttribute(name)) shown.setAttribute(name, fresh.getAttribute(name));
  }
  const parts = Array.from(fresh.childNodes);
  while (shown.childNodes.length > parts.length) shown.lastChild.remove();
  parts.forEach((part, at) => {
    const former = shown.childNodes[at];
    if (former) update(former, part);
    else shown.append(part);
  });
}

const number = (value) => (value === null ? "-" : value.toLocaleString("en"));
const count = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
const words = (code) => code.replaceAll("_", " ");
const bdi = (...children) => h("bdi", null, children);
const quiet = (...children) => h("p", { class: "quiet" }, children);
const arrow = () => h("span", { "aria-hidden": "true" }, "→");
const more = (left, noun) => (left > 0 ? quiet(`… and ${count(left, noun)} more.`) : null);
const time = (iso) => (iso ? h("time", { datetime: iso }, iso.slice(0, 19).replace("T", " ").replace("Z", "")) : "-");
const state = (tone, text, ...rest) => [h("span", { class: `state ${tone}` }, text), rest];
const help = (text) => (text ? h("span", { class: "help" }, arrow(), " ", bdi(coded(text))) : null);

// A text in which `this` is code, [ME037] leads to its explanation, and a file's name may be broken before its extension.
function coded(text) {
  const broken = (part) => part.split(/(?<=\d{20})(?=\.)/).flatMap((each, at) => (at ? [h("wbr"), each] : [each]));
  const linked = (part) => part.split(/(?<=\[)(ME\d{3})(?=\])/).map((each, at) => (at % 2 ? h("a", { href: `/explain/${each}` }, each) : broken(each)));
  return text.split("`").map((part, at) => (at % 2 ? h("code", null, part) : linked(part)));
}

// A name that a browser may break at its parts only.
function breakable(name) {
  return name.split(/(?<=[/_-])|(?=\.)|(?<=[a-z0-9])(?=[A-Z])/).flatMap((part, at) => (at ? [h("wbr"), part] : [part]));
}

const pending = (table) => (table.pending_files ? [count(table.pending_files, "file"), " since ", time(table.pending_since)] : "-");

const code = (found) => h("a", {
  class: `severity ${found.severity}`, href: `/explain/${found.code}`,
  "aria-label": `${SEVERITIES[found.severity]} ${found.code}, explained`,
}, found.code);

function place(found, folder) {
  const path = [found.location.path.replace(folder, "").replace(/^\/|\/$/g, "")].filter(Boolean);
  if (found.location.row !== null) path.push(`row ${found.location.row}`);
  return path.length ? `${path.join(", ")}: ` : "";
}

function diagnostic(found, folder) {
  const times = found.count > 1 ? ` (${number(found.count)} times)` : "";
  return h("li", null, h("b", { class: `severity ${found.severity}` }, SEVERITIES[found.severity]), " ", code(found), " ",
    bdi(place(found, folder), coded(found.message)), times, found.help ? [" ", help(found.help)] : null);
}

function grid(headings, rows, attributes) {
  const heads = headings.map((heading) => (heading instanceof Node ? heading : h("th", { scope: "col" }, heading)));
  return h("table", { class: "cards", ...attributes }, h("thead", null, h("tr", null, heads)), h("tbody", null, rows));
}

const td = (label, content, name = "") => h("td", { "data-label": label, class: `${name}${content === "-" ? " empty" : ""}` }, content);

// ---- all tables

const view = () => new URLSearchParams(location.search);

// Another view of the tables; the address keeps it.
function turn(changes) {
  const chosen = view();
  for (const [name, text] of Object.entries(changes)) if (text) chosen.set(name, text); else chosen.delete(name);
  history.replaceState(null, "", chosen.size ? `/?${chosen}` : "/");
  render();
}

function sorting() {
  const chosen = view().get("sort") ?? "";
  const order = Object.hasOwn(SORTS, chosen.replace("-", "")) ? SORTS[chosen.replace("-", "")] : SORTS.state;
  return { chosen, value: order.value, sign: chosen.startsWith("-") ? -1 : 1 };
}

function matching(tables) {
  const chosen = view();
  const parts = (chosen.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = chosen.get("state") ?? "";
  const { value, sign } = sorting();
  return tables
    .filter((table) => !wanted || wanted === table.state || wanted === table.urgency)
    .filter((table) => parts.every((part) => `${table.table} ${table.landing_folder}`.toLowerCase().includes(part)))
    .sort((one, other) => sign * (value(one) < value(other) ? -1 : value(one) > value(other) ? 1 : 0));
}

function heading(name) {
  const { heading: text, falling, numeric, extra } = SORTS[name];
  const { chosen } = sorting();
  const [first, second] = falling ? [`-${name}`, name] : [name, `-${name}`];
  const direction = { [name]: "ascending", [`-${name}`]: "descending" }[chosen];
  const mark = direction ? h("span", { "aria-hidden": "true" }, direction === "ascending" ? " ▲" : " ▼") : null;
  const sort = h("button", { type: "button", class: "sort", "data-sort": chosen === first ? second : first }, text, mark);
  return h("th", { scope: "col", class: `${numeric ? "number" : ""}${extra ? "extra" : ""}`, "aria-sort": direction }, sort);
}

function tableRow(table) {
  const found = table.diagnostic;
  const sentence = table.urgency === "stuck" ? table.message : found ? place(found, table.landing_folder) + found.message : "";
  const advice = table.urgency === "stuck" ? table.help : "";
  return h("tr", null,
    h("th", { scope: "row", class: "file" }, h("a", { href: table.url }, bdi(breakable(table.table)))),
    td("State", state(table.urgency, words(table.state))),
    td("Pending", pending(table), "lag"),
    td("Rows", number(table.row_count), "number"),
    td("Last commit", time(table.last_commit_at), "extra"),
    td("Why", sentence ? [found && !sentence.includes(found.code) ? [code(found), " "] : null, bdi(coded(sentence)), " ", help(advice)] : "-", "message"));
}

function item(each) {
  const { mirror } = each;
  const parts = [h("h2", { id: `name-${each.id}` }, bdi(each.workspace), " ", h("span", { class: "quiet", "aria-hidden": "true" }, "/"), " ", bdi(each.name))];
  if (mirror) {
    const running = mirror.engine_running ? "engine is running" : "no engine is running";
    const beat = mirror.last_heartbeat_at ? [", last heartbeat ", time(mirror.last_heartbeat_at)] : ", never ran here";
    parts.push(quiet(each.status, " · ", running, beat));
  } else {
    parts.push(quiet(each.status));
  }
  parts.push(each.errors.map((error) => h("p", { class: "error" }, bdi(coded(error)))));
  if (mirror) parts.push(tables(each));
  return h("section", { id: `item-${each.id}`, "aria-labelledby": `name-${each.id}` }, parts);
}

function tables({ id, landing_zone: url, mirror }) {
  const parts = [];
  if (mirror.last_failure) parts.push(h("p", { class: "error" }, bdi(coded(mirror.last_failure.message)), " ", help(mirror.last_failure.help)));
  if (!mirror.zone) parts.push(quiet("no landing zone (Files/LandingZone is missing)"));
  if (mirror.diagnostics.length) parts.push(h("ul", { class: "notes" }, mirror.diagnostics.slice(0, 100).map((each) => diagnostic(each, ""))));
  parts.push(more(mirror.diagnostics.length - 100, "note"));
  const found = matching(mirror.tables);
  const shown = view().get("all") ? found : found.slice(0, MAX_TABLES);
  if (found.length) {
    const headings = [...Object.keys(SORTS).map(heading), "What is wrong, and what to do"];
    parts.push(grid(headings, shown.map(tableRow), { "aria-labelledby": `name-${id}` }));
    if (shown.length < found.length) {
      parts.push(quiet(`The first ${number(shown.length)} of ${number(found.length)}. `, h("button", { type: "button", "data-all": "yes" }, "Show them all")));
    }
  } else if (mirror.tables.length) {
    parts.push(h("p", null, "No table matches."));
  } else {
    parts.push(h("p", null, "The landing zone has no table folders yet. Start your publisher with ", h("code", null, "mirror-engine emulator exec STORE -- COMMAND"),
      ". It publishes to ", h("code", null, breakable(url)), "."));
  }
  return parts;
}

function overview({ items }) {
  document.title = "mirror-engine";
  const all = items.flatMap((each) => each.mirror?.tables ?? []);
  const shown = items.reduce((sum, each) => sum + matching(each.mirror?.tables ?? []).length, 0);
  const chosen = view().get("state");
  const chips = STATES.map((code) => [code, all.filter((table) => table.state === code)]).filter(([, found]) => found.length);
  const filter = h("section", { id: "filter", "aria-label": "Filter", hidden: all.length ? null : "hidden" },
    h("p", { role: "search", class: "field" }, h("label", { for: "q" }, "Table"), " ",
      h("input", { type: "search", id: "q", maxlength: 200, autocomplete: "off", spellcheck: "false", placeholder: "part of its name", value: view().get("q") })),
    h("p", { class: "counts" },
      [["stuck", "needing attention", all.filter((table) => table.urgency === "stuck")], ...chips.map(([code, found]) => [code, words(code), found])]
        .filter(([, , found]) => found.length)
        .map(([code, text, found]) => h("button", {
          type: "button", class: `state ${found[0].urgency}`, "data-state": code, "aria-pressed": String(chosen === code),
        }, `${number(found.length)} ${text}`))),
    h("p", { id: "chosen", role: "status", class: "quiet" }, shown === all.length ? count(shown, "table") : `${number(shown)} of ${count(all.length, "table")}`));
  return [h("h1", { class: "unseen" }, "Tables"), filter, items.map(item),
    items.length ? null : h("section", { "aria-label": "Nothing" }, h("p", null, "The store has no mirrored databases."))];
}

// ---- one table

function fact(name, content, wide) {
  return h("div", { class: wide ? "wide" : "" }, h("dt", null, name), h("dd", null, content));
}

function tablePage({ item: { workspace, name }, table }) {
  document.title = table.table;
  const slash = () => [" ", h("span", { "aria-hidden": "true" }, "/"), " "];
  const rejected = table.files.filter((file) => file.state === "rejected").map((file) => file.path);
  const nexts = Object.entries(table.next_files).slice(0, 10).map(([folder, file]) => {
    const verb = rejected.includes(folder ? `${folder}/${file}` : file) ? "Replace" : "Next to land";
    return fact([verb, folder ? [" in ", bdi(folder)] : null], bdi(file), true);
  });
  return [
    h("section", { id: "state", "aria-labelledby": "title" },
      h("nav", { class: "quiet", "aria-label": "Breadcrumb" }, h("a", { href: "/" }, "All tables"), slash(), bdi(workspace), slash(), bdi(name)),
      h("h1", { id: "title" }, bdi(breakable(table.table)), " ", state(table.urgency, words(table.state))),
      h("p", { class: `sentence ${table.urgency}` }, bdi(coded(table.message))),
      table.help ? h("p", null, help(table.help)) : null,
      table.diagnostic && ["stuck", "idle"].includes(table.urgency)
        ? h("p", null, h("a", { href: `/explain/${table.diagnostic.code}` }, `What ${table.diagnostic.code} means`)) : null,
      h("dl", null,
        fact("Applied up to", table.applied_up_to), fact("Pending", pending(table)), fact("Rows in the table", number(table.row_count)),
        fact("Rows processed", number(table.rows_processed)), fact("Bytes of values processed", number(table.bytes_processed)),
        fact("Delta version", number(table.delta_version)), fact("Last commit", time(table.last_commit_at)),
        fact("Delta folder", bdi(breakable(table.delta_path))), nexts)),
    table.diagnostics.length ? h("section", { id: "diagnostics", "aria-labelledby": "diagnostics-title" },
      h("h2", { id: "diagnostics-title" }, "Diagnostics"),
      h("ul", { class: "notes" }, table.diagnostics.map((each) => diagnostic(each, table.landing_folder))),
      more(table.diagnostic_count - table.diagnostics.length, "diagnostic")) : null,
    files(table), commits(table), rows(table),
  ];
}

function files(table) {
  const applied = table.files.filter((file) => file.state === "applied").length;
  const body = table.files.map((file) => h("tr", null,
    h("th", { scope: "row", class: "file" }, bdi(breakable(file.path))),
    td("State", state(FILE_TONES[file.state], file.state, file.delta_version === null ? "" : ` at version ${file.delta_version}`)),
    td("Rows", number(file.rows), "number"),
    td("Why", file.reason ? bdi(coded(file.reason)) : "-", "message")));
  return h("section", { id: "files", "aria-labelledby": "files-title" }, h("h2", { id: "files-title" }, "Files"),
    body.length ? grid(["File", "State", h("th", { scope: "col", class: "number" }, "Rows"), "Why"], body) : quiet("No change file has landed yet."),
    more(table.pending_files - (table.files.length - applied), "pending file"), more(table.files_processed - applied, "applied file"));
}

function commits(table) {
  const body = table.commits.map((commit) => h("tr", null,
    h("th", { scope: "row", "data-label": "Version", class: "number" }, String(commit.version)),
    td("Time", time(commit.committed_at)), td("Operation", commit.operation), td("Rows", number(commit.rows), "number"),
    td("Change files", commit.file_count > commit.files.length
      ? [bdi(breakable(commit.files[0])), " … ", bdi(breakable(commit.files[1])), ` (${count(commit.file_count, "file")})`]
      : commit.files.length ? commit.files.map((file, at) => [at ? ", " : "", bdi(breakable(file))]) : "-", "file")));
  const headings = [h("th", { scope: "col", class: "number" }, "Version"), "Time", "Operation", h("th", { scope: "col", class: "number" }, "Rows"), "Change files"];
  return h("section", { id: "history", "aria-labelledby": "history-title" }, h("h2", { id: "history-title" }, "History"),
    body.length ? [grid(headings, body), table.has_more_commits ? quiet(`The newest ${count(body.length, "commit")}.`) : null] : quiet(table.error ?? "Nothing has been committed yet."));
}

function rows({ rows: found, error }) {
  const parts = [h("h2", { id: "rows-title" }, "First rows")];
  if (found?.cells.length) {
    const cells = (row) => row.map((text) => h("td", null, text === null ? h("i", { class: "null" }, "NULL") : bdi(text)));
    parts.push(h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "First rows" }, h("table", null,
      h("thead", null, h("tr", null, found.columns.map((name) => h("th", { scope: "col" }, bdi(name))))),
      h("tbody", null, found.cells.map((row) => h("tr", null, cells(row)))))));
    parts.push(more(found.column_count - found.columns.length, "column"));
    const which = found.has_more ? (found.is_sorted ? ", those with the lowest keys" : ", the first of the table's files") : "";
    parts.push(quiet(`${count(found.cells.length, "row")}${which}.`));
  } else {
    parts.push(error ? h("p", { class: "error" }, error) : quiet(found ? "The table has no rows." : "There is no Delta table yet."));
  }
  return h("section", { id: "rows", "aria-labelledby": "rows-title" }, parts);
}

// ---- one diagnostic

const prose = (text) => text.split("\n\n").map((part) => h("p", null, coded(part)));

function explainPage(page) {
  document.title = `${page.code}: ${page.title}`;
  const block = ({ kind, title, text }) => kind ? [title ? h("p", null, title.includes("/") ? h("code", null, title) : coded(title)) : null, h("pre", { tabindex: "0" }, text)] : prose(text);
  return h("section", { id: "explanation", "aria-labelledby": "title" },
    h("nav", { class: "quiet", "aria-label": "Breadcrumb" }, h("a", { href: "/" }, "All tables"), " ", h("span", { "aria-hidden": "true" }, "/"), ` ${page.code}`),
    h("h1", { id: "title" }, `${page.code}: ${page.title}`),
    quiet(h("b", { class: `severity ${page.severity}` }, SEVERITIES[page.severity]), ` · ${page.name} · `, h("code", null, `mirror-engine explain ${page.code}`)),
    prose(page.why), h("h2", null, "What to do"), prose(page.what_to_do),
    page.example.map(({ title, blocks }) => [h("h2", null, title), blocks.map(block)]),
    h("h2", null, "Rules"), h("dl", { class: "rules" }, page.rules.map((rule) => h("div", null, h("dt", null, rule.name), h("dd", null, prose(rule.text))))),
    page.related.length ? h("p", null, "Related:", page.related.map((code) => [" ", h("a", { href: `/explain/${code}` }, code)])) : null);
}

function absentPage() {
  document.title = "Not found";
  const [what, advice] = {
    tables: ["table", "Its folder may have been dropped, or its mirrored database removed or unreadable."],
    explain: ["diagnostic", ""],
  }[location.pathname.split("/")[1]] ?? ["page", ""];
  return h("section", { id: "absent", "aria-labelledby": "title" }, h("h1", { id: "title" }, `There is no such ${what}`),
    advice ? h("p", null, advice) : null, h("p", null, h("a", { href: "/" }, "All tables")));
}

// ---- asking

function render() {
  const page = !data ? absentPage : data.items ? overview : data.table ? tablePage : explainPage;
  const fresh = h("main", { id: "main", tabindex: "-1" });
  fresh.append(...[page(data)].flat(Infinity).filter(Boolean));
  update(main, fresh);
}

function say(word) {
  live.textContent = word;
  live.className = word;
}

async function load() {
  clearTimeout(timer);
  const started = performance.now();
  try {
    const answer = await fetch(location.pathname, { headers: { Accept: "application/json", "If-None-Match": etag } });
    if (![200, 304, 404].includes(answer.status)) throw new Error(answer.statusText);
    if (answer.status !== 304) {
      data = await answer.json();
      etag = answer.headers.get("ETag");
      render();
    }
    say("live");
  } catch {
    say("disconnected");
  }
  if (!document.hidden) timer = setTimeout(load, Math.max(REFRESH, 4 * (performance.now() - started)));
}

document.addEventListener("input", (event) => { if (event.target.id === "q") turn({ q: event.target.value.trim() }); });
document.addEventListener("click", (event) => {
  const chosen = event.target.closest("button")?.dataset ?? {};
  if (chosen.sort) turn({ sort: chosen.sort });
  if (chosen.state) turn({ state: view().get("state") === chosen.state ? "" : chosen.state, all: "" });
  if (chosen.all) turn({ all: chosen.all });
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) load(); else clearTimeout(timer); });
load();
