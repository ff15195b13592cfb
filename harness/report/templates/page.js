"use strict";
(() => {
  const root = document.documentElement;
  const $$ = (selector) => [...document.querySelectorAll(selector)];

  // Copy button: shown only where script runs.
  for (const button of $$("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const source = document.getElementById(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(source.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(source);
        button.textContent = "Press Ctrl+C";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }

  // One tooltip for every title, so that touch and keyboard reach it too.
  const tip = document.getElementById("tip");
  const words = new WeakMap();
  const take = (el) => {
    if (words.has(el)) return words.get(el);
    const child = el.querySelector(":scope > title");
    const text = child ? child.textContent : el.getAttribute("title");
    if (child) child.remove();
    else if (text) { el.removeAttribute("title"); el.setAttribute("aria-description", text); }
    words.set(el, text);
    return text;
  };
  for (const el of $$("[title], .dot")) take(el);
  const show = (event) => {
    let el = event.target;
    while (el && el.nodeType === 1 && !words.get(el)) el = el.parentElement;
    if (!el || el.nodeType !== 1) { tip.hidden = true; return; }
    tip.textContent = words.get(el);
    tip.hidden = false;
    const box = (el.querySelector(":scope .hit") || el).getBoundingClientRect();
    const width = tip.offsetWidth, height = tip.offsetHeight;
    const left = Math.min(Math.max(12, box.left + box.width / 2 - width / 2), root.clientWidth - width - 12);
    const top = box.top - height - 8 < 4 ? box.bottom + 8 : box.top - height - 8;
    tip.style.left = `${left + scrollX}px`;
    tip.style.top = `${top + scrollY}px`;
  };
  addEventListener("pointerover", show);
  addEventListener("focusin", show);
  addEventListener("focusout", () => { tip.hidden = true; });
  addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });

  // Charts: unpack plotly when the first one comes into view, draw each as it does.
  const store = document.getElementById("charts");
  const charts = store ? JSON.parse(store.textContent) : {};
  let loading;
  const load = () => loading ??= (async () => {
    const packed = document.getElementById("plotly");
    const bytes = Uint8Array.from(atob(packed.textContent), (char) => char.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    return window.Plotly;
  })();
  const dress = (value, colors) => {
    if (typeof value === "string") return value[0] === "@" && value.slice(1) in colors ? colors[value.slice(1)] : value;
    if (Array.isArray(value)) return value.map((item) => dress(item, colors));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, dress(item, colors)]));
    }
    return value;
  };
  const tokens = () => {
    const style = getComputedStyle(root);
    return Object.fromEntries(["ink", "muted", "grid", "card", "line", "warn", "band", "font", "c0", "c1", "c2", "c3", "c4", "c5"]
      .map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  };
  const draw = async (el) => {
    const plotly = await load();
    const { data, layout } = dress(charts[el.id], tokens());
    const names = data.filter((trace) => trace.showlegend !== false).map((trace) => trace.name.length);
    if (el.clientWidth < 480 && names.length) {
      // The height was made for four legend entries a row; fewer fit here, and the plot must not pay for it.
      const columns = Math.max(1, Math.floor((el.clientWidth - 60) / (7.2 * Math.max(...names) + 48)));
      layout.height += 20 * Math.max(0, Math.ceil(names.length / columns) - Math.ceil(names.length / 4));
    }
    el.classList.add("drawn");
    await plotly.react(el, data, layout, { displayModeBar: false, responsive: true, displaylogo: false });
  };
  const canvases = $$(".canvas").filter((el) => el.id in charts);
  for (const el of canvases) el.style.minHeight = `${el.dataset.height}px`;
  const failed = (el) => { el.style.minHeight = ""; el.classList.remove("drawn"); el.dataset.failed = "1"; };
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watch.unobserve(entry.target);
      draw(entry.target).catch((error) => { console.error(error); failed(entry.target); });
    }
  }, { rootMargin: "300px" });
  for (const el of canvases) watch.observe(el);
  const again = () => { for (const el of canvases) if (el.classList.contains("drawn")) draw(el); };
  // Paper is white whatever the screen is: colours are read again for print and after it.
  for (const media of ["(prefers-color-scheme: dark)", "print"]) matchMedia(media).addEventListener("change", again);
  addEventListener("beforeprint", () => { for (const el of $$("details.numbers")) el.open = true; });
  addEventListener("afterprint", () => { for (const el of $$("details.numbers")) el.open = false; });

  // Streams: replay every request at the speed it really had.
  for (const card of $$(".streams")) {
    const button = card.querySelector(".play");
    const seconds = Number(card.dataset.seconds);
    const strips = [...card.querySelectorAll(".strip[data-times]")].map((strip) => ({
      svg: strip.querySelector("svg"),
      cap: strip.querySelector(".cap"),
      words: strip.querySelector(".cap").textContent,
      times: strip.dataset.times.split(" ").map((pair) => pair.split(":").map(Number)),
    }));
    let frame = 0;
    const stop = () => {
      cancelAnimationFrame(frame);
      frame = 0;
      button.textContent = "Play in real time";
      for (const strip of strips) { strip.svg.style.clipPath = ""; strip.cap.textContent = strip.words; }
    };
    const step = (start) => (now) => {
      const t = (now - start) / 1000;
      if (t > seconds) { stop(); return; }
      for (const strip of strips) {
        strip.svg.style.clipPath = `inset(0 ${100 - (100 * t) / seconds}% 0 0)`;
        const count = strip.times.reduce((sum, [at, n]) => sum + (at <= t ? n : 0), 0);
        strip.cap.textContent = `${count} tokens at ${t.toFixed(2)} s`;
      }
      frame = requestAnimationFrame(step(start));
    };
    button.hidden = false;
    button.addEventListener("click", () => {
      if (frame) { stop(); return; }
      button.textContent = "Stop";
      frame = requestAnimationFrame((now) => step(now)(now));
    });
  }
})();
