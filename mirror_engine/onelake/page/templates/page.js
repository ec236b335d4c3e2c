"use strict";
// Keeps the page's parts as they are now: the server sends the same HTML that it gives without a script.

const live = document.getElementById("live");
const main = document.querySelector("main");
let source = null;
let typing = 0;

// Makes a node equal to a fresh one and leaves all in it that is equal already, with its focus and scrolling.
function update(shown, fresh) {
  if (shown.isEqualNode(fresh)) return;
  if (shown.nodeType !== Node.ELEMENT_NODE || shown.nodeName !== fresh.nodeName) {
    shown.replaceWith(fresh);
    return;
  }
  for (const name of shown.getAttributeNames()) {
    if (!fresh.hasAttribute(name) && name !== "open") shown.removeAttribute(name);
  }
  for (const name of fresh.getAttributeNames()) {
    if (shown.getAttribute(name) !== fresh.getAttribute(name)) shown.setAttribute(name, fresh.getAttribute(name));
  }
  const named = new Map(Array.from(shown.children, (child) => [child.id, child]));
  let next = shown.firstChild;
  for (const child of Array.from(fresh.childNodes)) {
    const same = child.id ? named.get(child.id) : next?.id ? undefined : next;
    if (same && same === next) {
      next = next.nextSibling;
      update(same, child);
    } else {
      shown.insertBefore(same ?? child, next);
      if (same) update(same, child);
    }
  }
  while (next) {
    const gone = next;
    next = next.nextSibling;
    gone.remove();
  }
}

function show(html) {
  const parsed = new DOMParser().parseFromString(`<main>${html}</main>`, "text/html").querySelector("main");
  for (const name of main.getAttributeNames()) parsed.setAttribute(name, main.getAttribute(name));
  update(main, parsed);
}

function setState(word) {
  live.textContent = word;
  live.className = word;
}

function listen() {
  source?.close();
  source = new EventSource(location.href);
  source.onmessage = (event) => { show(event.data); setState("live"); };
  source.onerror = () => setState("disconnected");
}

// Another view of the same page.
function turn(url) {
  history.replaceState(null, "", url);
  listen();
}

function filter() {
  const chosen = new URLSearchParams(new FormData(document.querySelector("#filter form")));
  for (const [name, text] of Array.from(chosen)) if (!text) chosen.delete(name);
  turn(`/?${chosen}`);
}

async function copy(button) {
  await navigator.clipboard.writeText(button.previousElementSibling.textContent);
  setState("copied");
}

document.documentElement.classList.add("scripts");
document.addEventListener("input", (event) => {
  if (!event.target.closest("#filter")) return;
  clearTimeout(typing);
  typing = setTimeout(filter, 150);
});
document.addEventListener("submit", (event) => { event.preventDefault(); filter(); });
document.addEventListener("click", (event) => {
  const link = event.target.closest("a.soft");
  const button = event.target.closest("button.copy");
  if (button) copy(button);
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  turn(link.href);
  const chosen = new URL(link.href).searchParams;
  const form = document.querySelector("#filter form");
  for (const name of ["q", "state"]) form.elements[name].value = chosen.get(name) ?? "";
});

// A browser keeps few connections to one server: hidden pages give theirs back.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    source?.close();
    source = null;
  } else if (source === null) {
    listen();
  }
});

if (!document.hidden) listen();
