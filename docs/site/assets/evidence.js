// The table of all measurements: filters, sorts, and shows so many rows at a time. measurements.js, beside this file, has
// the data; it is a script because a page that is opened as a file may not fetch.
(function () {
  const root = document.getElementById("measurements");
  if (!root) return;
  const data = document.createElement("script");
  data.src = new URL("measurements.js", document.currentScript.src).href;
  data.onload = () => show(root);
  document.head.append(data);
})();

function show(root) {
  const { heads, peers, rows } = window.measurements;
  const columns = [...heads, ...peers.map((peer) => `${peer} / ours`)];
  const [GPU, OPERATION, TYPES, SHAPE, CLASS, BYTES, US, SHARE, FIRST_PEER] = columns.keys();
  const STEP = 100;
  const state = { sort: SHARE, up: true, shown: STEP };

  const make = (tag, properties = {}, ...children) => {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children);
    return node;
  };
  const values = (column) => [...new Set(rows.map((row) => row[column]))].sort();
  const choice = (name, options) =>
    make("label", {}, name, make("select", { name }, make("option", { value: "", textContent: "all" }),
      ...options.map((each) => make("option", { value: each, textContent: each }))));
  const text = (name, hint) => make("label", {}, name, make("input", { name, type: "search", placeholder: hint }));

  const several = values(GPU).length > 1;
  const words = [...new Set(values(TYPES).flatMap((each) => each.split(" ")))].sort();
  const form = make("form", { onsubmit: (event) => event.preventDefault() },
    text("operation", "softmax, quantize per token"), choice("type", words), text("shape", "4096x4096"),
    choice("class", values(CLASS)), ...(several ? [choice("GPU", values(GPU))] : []), choice("peer", peers),
    choice("result", ["slower than the copy", "slower than the peer", "faster than the peer"]));
  const count = make("p", { role: "status" });
  const body = make("tbody");
  const head = make("tr");
  const more = make("button", { type: "button", textContent: "show more" });
  const table = make("table", {}, make("thead", {}, head), body);
  root.replaceChildren(form, count, make("div", { className: "scroll", tabIndex: 0 }, table), more);

  columns.forEach((name, column) => {
    const button = make("button", { type: "button", textContent: name, onclick: () => {
      state.up = state.sort === column ? !state.up : true;
      state.sort = column;
      draw();
    } });
    head.append(make("th", { scope: "col", hidden: column === GPU && !several }, button));
  });

  const ratio = (row, peer) => {
    const found = peer ? [row[FIRST_PEER + peers.indexOf(peer)]] : row.slice(FIRST_PEER);
    const known = found.filter((each) => each !== null);
    return known.length ? Math.min(...known) : null;
  };

  function chosen() {
    const wanted = Object.fromEntries(new FormData(form));
    const parts = wanted.operation.toLowerCase().split(/[\s_]+/).filter(Boolean);
    return rows.filter((row) => {
      const best = ratio(row, wanted.peer);
      return parts.every((part) => row[OPERATION].includes(part)) &&
        (!wanted.type || row[TYPES].split(" ").includes(wanted.type)) &&
        row[SHAPE].includes(wanted.shape.trim()) &&
        (!wanted.class || row[CLASS] === wanted.class) &&
        (!wanted.GPU || row[GPU] === wanted.GPU) &&
        (!wanted.peer || best !== null) &&
        (wanted.result !== "slower than the copy" || row[SHARE] < 1) &&
        (wanted.result !== "slower than the peer" || (best !== null && best < 1)) &&
        (wanted.result !== "faster than the peer" || (best !== null && best >= 1));
    });
  }

  const compare = (a, b) => {
    if (a === b) return 0;
    if (a === null) return 1; // what was not measured comes last
    if (b === null) return -1;
    return (a < b ? -1 : 1) * (state.up ? 1 : -1);
  };

  const cell = (value, column) => {
    const number = typeof value === "number";
    const slower = number && column >= FIRST_PEER && value < 1;
    const shown = value === null ? "-" : column === BYTES ? (value / 1e6).toFixed(2) + " MB" :
      number ? value.toFixed(column === US ? 1 : 2) : value;
    const className = [number && "number", slower && "slower"].filter(Boolean).join(" ");
    return make("td", { textContent: shown, className, hidden: column === GPU && !several });
  };

  function draw() {
    const found = chosen().sort((a, b) => compare(a[state.sort], b[state.sort]));
    body.replaceChildren(...found.slice(0, state.shown).map((row) => make("tr", {}, ...row.map(cell))));
    head.querySelectorAll("th").forEach((th, column) =>
      th.setAttribute("aria-sort", column !== state.sort ? "none" : state.up ? "ascending" : "descending"));
    count.textContent = `${found.length} of ${rows.length} measurements`;
    more.hidden = found.length <= state.shown;
  }

  form.addEventListener("input", () => {
    state.shown = STEP;
    draw();
  });
  more.addEventListener("click", () => {
    state.shown += STEP;
    draw();
  });
  draw();
}
