// The only script of the dashboard: keeps the page fresh, and answers the keyboard. Without it every page still works.
"use strict";

const root = document.documentElement;
const THEME = "leasehold-theme";

function stored(value) {
  try {
    return value === undefined ? localStorage.getItem(THEME) : localStorage.setItem(THEME, value);
  } catch {
    return null; // a browser that keeps nothing
  }
}

const theme = stored(); // before anything is drawn, so that nothing flashes
if (theme === "light" || theme === "dark") root.dataset.theme = theme;

function switchTheme() {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  stored(root.dataset.theme);
}

class Live {
  constructor(area, status, button) {
    this.area = area;
    this.status = status;
    this.button = button;
    this.query = area.dataset.stream;
    this.paused = false;
    this.selected = null;
    button.hidden = false;
    button.addEventListener("click", () => this.toggle());
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : this.open()));
    addEventListener("pagehide", () => this.close());
    this.open();
  }

  open() {
    if (this.paused || this.source || document.hidden) return;
    this.source = new EventSource("stream?" + this.query);
    this.source.addEventListener("page", (event) => this.show(JSON.parse(event.data)));
    this.source.addEventListener("error", () => this.failed());
  }

  close() {
    this.source?.close();
    this.source = null;
  }

  failed() {
    this.say("lost", "no connection");
    if (this.source?.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
    this.close();
    setTimeout(() => this.open(), 5000);
  }

  show(html) {
    if (this.paused) return;
    const focused = this.area.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    this.area.innerHTML = html; // drawn and escaped by the server, as the page itself was
    if (focused) [...this.area.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
    this.mark();
    this.say("live", "live");
  }

  say(state, text) {
    this.status.dataset.state = state;
    if (this.status.textContent !== text) this.status.textContent = text;
  }

  toggle() {
    this.paused = !this.paused;
    this.button.setAttribute("aria-pressed", String(this.paused));
    this.button.textContent = this.paused ? "Go on" : "Pause";
    if (this.paused) {
      this.close();
      this.say("static", "paused " + new Date().toLocaleTimeString());
    } else {
      this.say("static", "loading");
      this.open();
    }
  }

  ask(query) {
    this.query = "of=locks&" + query;
    this.close();
    this.open();
  }

  rows() {
    return [...this.area.querySelectorAll("tr[data-key]")];
  }

  move(step) {
    const rows = this.rows();
    if (!rows.length) return;
    const at = rows.findIndex((row) => row.dataset.key === this.selected);
    const next = at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + step, 0), rows.length - 1);
    this.selected = rows[next].dataset.key;
    this.mark();
    rows[next].scrollIntoView({ block: "nearest" });
  }

  mark() {
    for (const row of this.rows()) row.toggleAttribute("aria-selected", false);
    this.row()?.setAttribute("aria-selected", "true");
  }

  row() {
    return this.selected === null ? null : this.rows().find((row) => row.dataset.key === this.selected);
  }

  enter() {
    this.row()?.querySelector("a")?.click();
  }
}

function followFilter(form, live) {
  form.querySelector("button").hidden = true;
  let timer;
  const changed = () => {
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value)).toString();
    history.replaceState(null, "", query ? "./?" + query : "./");
    live.ask(query);
  };
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(changed, 200);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    changed();
    document.activeElement.blur();
  });
}

function answerKeys(live) {
  const help = document.getElementById("help");
  const search = document.getElementById("search");
  const keys = {
    "/": () => search?.focus(),
    "?": () => help.showModal(),
    j: () => live?.move(1),
    k: () => live?.move(-1),
    p: () => live?.toggle(),
    t: switchTheme,
    Enter: () => live?.enter(),
  };
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select");
    if (event.key === "Escape" && typing === search) search?.blur();
    if (typing || help.open || event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    // The button of a dialog that was just closed keeps the focus for a moment.
    if (event.key === "Enter" && event.target.closest("a, button") && !help.contains(event.target)) return;
    event.preventDefault();
    keys[event.key]();
  });
  const button = document.getElementById("keys");
  button.hidden = false;
  button.addEventListener("click", () => help.showModal());
}

document.addEventListener("DOMContentLoaded", () => {
  const area = document.getElementById("live");
  const live = area.dataset.stream
    ? new Live(area, document.getElementById("status"), document.getElementById("pause"))
    : null;
  const filter = document.getElementById("filter");
  if (filter && live) followFilter(filter, live);
  answerKeys(live);
  const button = document.getElementById("theme");
  button.hidden = false;
  button.addEventListener("click", switchTheme);
});
