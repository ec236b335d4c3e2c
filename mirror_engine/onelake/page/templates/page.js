"use strict";
// Keeps the page's parts as they are now: the server sends the same HTML that it gives without a script.

const live = document.getElementById("live");
const main = document.querySelector("main");
let source = null;

function show(html) {
  const fresh = new DOMParser().parseFromString(`<main>${html}</main>`, "text/html").querySelector("main");
  const ids = (parts) => Array.from(parts.children, (part) => part.id).join();
  if (ids(fresh) !== ids(main)) {
    main.replaceChildren(...fresh.children);
    return;
  }
  for (const part of Array.from(fresh.children)) {
    const shown = document.getElementById(part.id);
    if (shown.outerHTML === part.outerHTML) continue;
    const places = Array.from(shown.querySelectorAll(".scroll"), (box) => box.scrollLeft);
    shown.replaceWith(part);
    part.querySelectorAll(".scroll").forEach((box, at) => { box.scrollLeft = places[at] ?? 0; });
  }
}

function setState(word) {
  live.textContent = word;
  live.className = word;
}

function listen() {
  source = new EventSource(location.href);
  source.onmessage = (event) => { show(event.data); setState("live"); };
  source.onerror = () => setState("disconnected");
}

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
